# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Flags of every target, and the functions by which folders declare libraries, modules and commands.

option(VIADUCT_WERROR "Warnings are errors" ON)
option(VIADUCT_FUZZ "Build tests/fuzz/fuzz_*.c with libFuzzer (clang)" OFF)
set(VIADUCT_SANITIZE "" CACHE STRING "Value of -fsanitize= for everything but shared libraries")
option(VIADUCT_UNDEFINED_TRAPS "UBSan executes a trap instruction instead of printing what is undefined" OFF)

include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
# Debian's Python, whose modules tools/packages.txt installs. One that comes first in PATH may be a script of a version manager, which
# takes six times the CPU time to start; the tests start a thousand. Another one: -DPython3_ROOT_DIR=PREFIX.
set(Python3_ROOT_DIR /usr CACHE PATH "Prefix of the Python that tools and tests run under")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Everything that runs or is loaded lies in one place, so tests and tools need to know one path.
set(VIADUCT_BIN_DIR ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${VIADUCT_BIN_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${VIADUCT_BIN_DIR})
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# Empty value: a source that says "#define _GNU_SOURCE" as well is the same definition, not a new one.
add_compile_definitions(_GNU_SOURCE=)
if(VIADUCT_FUZZ)
    add_compile_definitions(VIA_MUTANTS) # fuzzers have planted bugs to catch; nothing of this preset is shipped
endif()
add_compile_options(
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla
    -Wundef -Wpointer-arith -Wcast-align -Wwrite-strings -Wformat=2 -Wimplicit-fallthrough
    -Wredundant-decls -Wnested-externs
    -fno-common -fstack-protector-strong -ffunction-sections -fdata-sections)
if(VIADUCT_WERROR)
    add_compile_options(-Werror)
endif()
add_link_options(-Wl,--as-needed -Wl,--gc-sections)

# Carries the sanitizer flags. Not global: shared libraries go without, see via_add_unsanitized_module.
add_library(via_sanitize INTERFACE)
if(VIADUCT_SANITIZE)
    target_compile_options(via_sanitize INTERFACE
        -fsanitize=${VIADUCT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(via_sanitize INTERFACE -fsanitize=${VIADUCT_SANITIZE})
    if(VIADUCT_SANITIZE MATCHES "undefined" AND VIADUCT_UNDEFINED_TRAPS)
        # Finds the same errors. Programs are half as large and start in two thirds of the time, because calls of UBSan's reports, their data
        # and libubsan are left out. ASan prints the stack (handle_sigill=1 in ViaductTest.cmake).
        target_compile_options(via_sanitize INTERFACE -fsanitize-undefined-trap-on-error)
        target_link_options(via_sanitize INTERFACE -fsanitize-undefined-trap-on-error)
    endif()
    if(VIADUCT_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # At a fixed address: else the loader relocates 150,000 pointers, most of them UBSan's, at each start of a command.
        target_link_options(via_sanitize INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
        # Links large programs in half the time of the default linker. Debian 13 has it in a package of its own.
        include(CheckLinkerFlag)
        check_linker_flag(C -fuse-ld=gold VIADUCT_HAVE_GOLD)
        if(VIADUCT_HAVE_GOLD)
            target_link_options(via_sanitize INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-fuse-ld=gold>)
        endif()
    endif()
    if(VIADUCT_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # GCC warns of every atomic_thread_fence here; where a fence is right, that is no defect.
        target_compile_options(via_sanitize INTERFACE -Wno-tsan)
    endif()
endif()

# via_glob(<variable> <pattern>... [EXCLUDE <regex>]): sources of the current folder. A file that is added
# or removed is noticed by the next build.
function(via_glob var)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCLUDE" "")
    list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    file(GLOB files CONFIGURE_DEPENDS ${arg_UNPARSED_ARGUMENTS})
    if(arg_EXCLUDE)
        list(FILTER files EXCLUDE REGEX "${arg_EXCLUDE}")
    endif()
    set(${var} ${files} PARENT_SCOPE)
endfunction()

function(via_declare_library name suffix)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;DEPENDS;LIBS;INCLUDES")
    set(target ${name}${suffix})
    list(TRANSFORM arg_DEPENDS APPEND "${suffix}")
    if(arg_SOURCES)
        add_library(${target} STATIC ${arg_SOURCES})
        set(scope PUBLIC)
        if(NOT suffix)
            target_link_libraries(${target} PRIVATE via_sanitize)
        else()
            set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
        endif()
    else()
        # No source yet, or headers only: targets that depend on it need not know.
        add_library(${target} INTERFACE)
        set(scope INTERFACE)
    endif()
    target_include_directories(${target} ${scope} ${PROJECT_SOURCE_DIR}/src
                               ${PROJECT_SOURCE_DIR}/include ${arg_INCLUDES})
    target_link_libraries(${target} ${scope} ${arg_DEPENDS} ${arg_LIBS})
endfunction()

# via_add_library(<name> SOURCES ... DEPENDS <via_ library>... LIBS <other library>... INCLUDES <folder>...)
# Declares a static library of the project, and <name>_plain: the same without sanitizers, which is what
# shared libraries link. Without sanitizers both are one.
function(via_add_library name)
    via_declare_library(${name} "" ${ARGN})
    if(VIADUCT_SANITIZE)
        via_declare_library(${name} _plain ${ARGN})
    else()
        add_library(${name}_plain ALIAS ${name})
    endif()
    set_property(GLOBAL APPEND PROPERTY VIADUCT_LIBRARIES ${name})
endfunction()

# via_add_unsanitized_module(<name> SOURCES ... DEPENDS <via_ library>... [WHOLE <via_ library>] LIBS ...
#                            [VERSIONED] [MAP <file>])
# A shared library lib<name>.so that is loaded into programs of others. Those are not built with sanitizers,
# and a sanitizer's runtime has to be loaded first, so the library goes without in every preset. It exports
# only what an attribute says (and, given a map, the map allows), and has no undefined symbols.
# WHOLE: all of that library goes in, not just what the sources need. VERSIONED: has a SONAME.
function(via_add_unsanitized_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "VERSIONED" "WHOLE;MAP" "SOURCES;DEPENDS;LIBS")
    if(NOT arg_SOURCES)
        # CMake wants a source, also where WHOLE brings everything.
        set(arg_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/${name}-empty.c)
        file(CONFIGURE OUTPUT ${arg_SOURCES} CONTENT "")
    endif()
    add_library(${name} SHARED ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    list(TRANSFORM arg_DEPENDS APPEND _plain)
    if(arg_WHOLE)
        list(APPEND arg_DEPENDS "$<LINK_LIBRARY:WHOLE_ARCHIVE,${arg_WHOLE}_plain>")
    endif()
    target_link_libraries(${name} PRIVATE ${arg_DEPENDS} ${arg_LIBS} Threads::Threads)
    target_link_options(${name} PRIVATE -Wl,-z,defs)
    if(arg_VERSIONED)
        set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION}
                              SOVERSION ${PROJECT_VERSION_MAJOR})
    endif()
    if(arg_MAP AND EXISTS ${arg_MAP})
        target_link_options(${name} PRIVATE -Wl,--version-script=${arg_MAP})
        set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${arg_MAP})
    endif()
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# via_add_executable(<name> SOURCES ... DEPENDS <via_ library>... LIBS ...): not installed.
function(via_add_executable name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LIBS")
    add_executable(${name} ${arg_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} PRIVATE ${arg_DEPENDS} ${arg_LIBS} Threads::Threads via_sanitize)
endfunction()

# via_add_command(<name> SOURCES ... DEPENDS ... LIBS ...): an executable that is installed; tests ask for its
# man page and --help. All are in one folder, so that one finds another beside itself.
function(via_add_command name)
    via_add_executable(${name} ${ARGN})
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    set_property(GLOBAL APPEND PROPERTY VIADUCT_COMMANDS ${name})
endfunction()

# via_add_script(<name> <file>): the same for a command that is a script.
function(via_add_script name file)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    configure_file(${file} ${VIADUCT_BIN_DIR}/${name} COPYONLY
                   FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                   WORLD_READ WORLD_EXECUTE)
    install(PROGRAMS ${file} DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME ${name})
    set_property(GLOBAL APPEND PROPERTY VIADUCT_COMMANDS ${name})
endfunction()
