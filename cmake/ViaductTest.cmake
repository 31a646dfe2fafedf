# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# How tests are declared. Exit code 77 is a skip; its reason is in the output.

pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(VIADUCT_BASH bash REQUIRED)

# Scripts that tests start by name run under the same interpreter.
cmake_path(GET Python3_EXECUTABLE PARENT_PATH via_python_folder)

# tests/supervise.py ends the processes that a test leaves behind. It needs no installed packages; to look for them (without -S) takes
# a tenth of the CPU time of its start.
set(via_supervised ${Python3_EXECUTABLE} -S ${PROJECT_SOURCE_DIR}/tests/supervise.py)

# By default ASan detects uses of a stack frame after its function has returned in the fast tests only: the detection costs the simulator
# and the daemons a third of their time. `make test-stacks` looks for them in all tests, and for leaks of viaduct and oshrun, too.
option(VIADUCT_STACK_CHECKS "Detect uses of a stack frame after its function has returned in all tests, not in the fast ones only, and leaks of commands" OFF)

set(via_test_env
    VIADUCT_BUILD_DIR=${VIADUCT_BIN_DIR}
    VIADUCT_SOURCE_DIR=${PROJECT_SOURCE_DIR}
    UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp
    PYTHONDONTWRITEBYTECODE=1)

# Seconds on an idle machine, of the tests that take longest: ctest starts these first, so that no core is idle at the end. Tests wait for
# events and hold beside each other; one that measures time repeats a measurement that other programs may have disturbed.
set(via_test_seconds
    system-shmem_ring 190 sockets-one_machine 140 sockets-between_hosts 120 machines-jobs 100 sockets-cut_off_for_good 65 sockets-deaths_hosts 60
    sockets-sanitized 50 system-shmem_algorithms 45 system-shmem_profile 40 system-direct_auto 40 sockets-demotion_hosts 38
    system-shmem_launchers 58 machines-ip_direct 55 system-cli_daemons 50 system-cli_fabric 48 machines-tune_sockets 44
    system-shmem_calls 42 system-shmem_wrappers 15 sockets-cut_off 40 system-cli_machines 39
    conform-ofi_processes 39 conform-pex 35 sockets-event_loops 33 lab-quick 80 system-cli_perf 28 conform-pex_processes 28
    system-cli_like 27 system-host_aperture 26 machines-links 22 conform-ofi_threads 22 machines-bad_input 21
    system-pex_daemons 19 conform-strict_processes 18 system-host_tenants 18 conform-fault_threads 18 conform-ivshmem 18
    system-host_death 17 system-cli_bad_input 17 system-cli_tune 17 sim-rings 14 conform-emu_processes 14 sockets-demotion 13
    sim-plan 60 sim-mutants 50 sim-plan-core 40 sim-paper-B 30 cost-physics 30 sim-regressions 20 sim-pex-driver 20)

# Sets the properties that all tests have. The first label determines the time limit, which allows for a machine with ten busy threads
# per core. ThreadSanitizer makes some tests of the whole system ten times as slow.
function(via_test_properties name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS")
    list(GET arg_LABELS 0 label)
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
        if(label MATCHES "^(sim|conform|system)$")
            set(arg_TIMEOUT 900)
        elseif(label MATCHES "^(vm|hw)$")
            set(arg_TIMEOUT 1800)
        endif()
    endif()
    if(VIADUCT_SANITIZE MATCHES "thread")
        math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")
    endif()
    set(checks detect_stack_use_after_return=0)
    if(label STREQUAL "fast" OR VIADUCT_STACK_CHECKS)
        set(checks detect_stack_use_after_return=1)
    endif()
    if(VIADUCT_STACK_CHECKS)
        string(APPEND checks ":detect_leaks=1")
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77
                         ENVIRONMENT "${via_test_env};ASAN_OPTIONS=abort_on_error=1:handle_sigill=1:${checks}"
                         ENVIRONMENT_MODIFICATION PATH=path_list_prepend:${via_python_folder})
    if(label MATCHES "^(vm|hw)$")
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
    list(FIND via_test_seconds ${name} index)
    if(index GREATER -1)
        math(EXPR index "${index} + 1")
        list(GET via_test_seconds ${index} seconds)
        set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
endfunction()

# The caller's TIMEOUT for via_test_properties, or nothing: CMake 3.31 warns of a keyword whose value is empty.
macro(via_pass_timeout var)
    set(${var} "")
    if(arg_TIMEOUT)
        set(${var} TIMEOUT ${arg_TIMEOUT})
    endif()
endmacro()

# via_add_test(<name> SOURCES ... [LIBS ...] [LABELS ...] [TIMEOUT <s>] [ARGS ...]): a cmocka test.
# Without LIBS it is linked to all libraries of the project, without LABELS it is "fast".
function(via_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBS;LABELS;ARGS")
    via_pass_timeout(timeout)
    if(NOT arg_LIBS)
        get_property(arg_LIBS GLOBAL PROPERTY VIADUCT_LIBRARIES)
    endif()
    if(NOT arg_LABELS)
        set(arg_LABELS fast)
    endif()
    via_add_executable(${name} SOURCES ${arg_SOURCES} DEPENDS ${arg_LIBS} LIBS PkgConfig::CMOCKA)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${VIADUCT_BIN_DIR}/tests)
    add_test(NAME ${name} COMMAND ${via_supervised} $<TARGET_FILE:${name}> ${arg_ARGS})
    via_test_properties(${name} LABELS ${arg_LABELS} ${timeout})
endfunction()

# via_add_script_test(<name> <script> [LABELS ...] [TIMEOUT <s>] [ARGS ...]): a .sh or .py.
function(via_add_script_test name script)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "TIMEOUT" "LABELS;ARGS")
    via_pass_timeout(timeout)
    if(NOT arg_LABELS)
        set(arg_LABELS fast)
    endif()
    cmake_path(ABSOLUTE_PATH script BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set(interpreter ${VIADUCT_BASH})
    if(script MATCHES "\\.py$")
        set(interpreter ${Python3_EXECUTABLE})
    endif()
    add_test(NAME ${name} COMMAND ${via_supervised} ${interpreter} ${script} ${arg_ARGS})
    via_test_properties(${name} LABELS ${arg_LABELS} ${timeout})
endfunction()

# via_add_strict_tests(<name> <script> ...): the script test three times, in fabrics whose links promise no more than real ones of a class.
# `make strict` runs all of these scripts.
function(via_add_strict_tests name script)
    foreach(like pex ivshmem network)
        via_add_script_test(${name}-${like} ${script} ${ARGN})
        set_property(TEST ${name}-${like} APPEND PROPERTY ENVIRONMENT VIADUCT_UP_LIKE=${like})
    endforeach()
endfunction()

# via_add_test_folder(<name>): a folder of tests without a CMakeLists.txt of its own.
#   test_*.c            a cmocka test each
#   test_*.sh, .py      a test each
#   prog_*.c            a program for tests to run, bin/tests/prog_*: built without sanitizers and without
#                       our libraries, like any program of a user
#   any other *.c       shared by the tests of the folder
# Labels: unit and repo are "fast"; sim, conform, system, vm, hw their own; others "fast" and their name.
function(via_add_test_folder folder)
    set(labels ${folder})
    if(folder MATCHES "^(unit|repo)$")
        set(labels fast)
    elseif(NOT folder MATCHES "^(sim|conform|system|vm|hw)$")
        set(labels fast ${folder})
    endif()
    get_property(libraries GLOBAL PROPERTY VIADUCT_LIBRARIES)

    via_glob(shared ${folder}/*.c EXCLUDE "/(test|prog)_[^/]*$")
    if(shared)
        add_library(via_test_${folder} STATIC ${shared})
        target_include_directories(via_test_${folder} PUBLIC ${PROJECT_SOURCE_DIR})
        target_link_libraries(via_test_${folder} PUBLIC ${libraries} PkgConfig::CMOCKA
                              PRIVATE via_sanitize)
        list(PREPEND libraries via_test_${folder})
    endif()

    via_glob(tests ${folder}/test_*.c)
    foreach(source IN LISTS tests)
        cmake_path(GET source STEM name)
        string(REGEX REPLACE "^test_" "" name ${name})
        via_add_test(${folder}-${name} SOURCES ${source} LIBS ${libraries} LABELS ${labels})
    endforeach()

    via_glob(scripts ${folder}/test_*.sh ${folder}/test_*.py)
    foreach(source IN LISTS scripts)
        cmake_path(GET source STEM name)
        string(REGEX REPLACE "^test_" "" name ${name})
        via_add_script_test(${folder}-${name} ${source} LABELS ${labels})
    endforeach()

    via_glob(programs ${folder}/prog_*.c)
    foreach(source IN LISTS programs)
        cmake_path(GET source STEM name)
        add_executable(${name} ${source})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${VIADUCT_BIN_DIR}/tests)
        target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    endforeach()
endfunction()
