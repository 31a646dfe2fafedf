# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# Installs everything but libraries and commands, whose declarations install them.

install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL
        FILES_MATCHING PATTERN "*.h")

foreach(section 1 3 5 7 8)
    file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.${section})
    if(pages)
        install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endif()
endforeach()

# Section 3, one page for each call of OpenSHMEM, from the tables of the headers.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
    set(man3 ${PROJECT_BINARY_DIR}/man/man3)
    add_custom_command(
        OUTPUT ${man3}/shmem_put.3
        COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/man3 ${man3} --cc ${CMAKE_C_COMPILER}
        DEPENDS ${PROJECT_SOURCE_DIR}/tools/man3 ${PROJECT_SOURCE_DIR}/tools/shmem_tables.py
                ${PROJECT_SOURCE_DIR}/docs/man/shmem.3.in
                ${PROJECT_SOURCE_DIR}/include/shmem.h ${PROJECT_SOURCE_DIR}/include/viaduct/shmem_entries.h
                ${PROJECT_SOURCE_DIR}/include/viaduct/shmem_types.h
                ${PROJECT_SOURCE_DIR}/include/viaduct/shmem_generic.h
        COMMENT "Pages of section 3" VERBATIM)
    add_custom_target(man3 ALL DEPENDS ${man3}/shmem_put.3)
    install(DIRECTORY ${man3}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 FILES_MATCHING PATTERN "*.3")
else()
    message(STATUS "no python3: no pages of section 3")
endif()

configure_file(viaduct.pc.in viaduct.pc @ONLY)
if(TARGET libviaduct)
    install(FILES ${PROJECT_BINARY_DIR}/viaduct.pc
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

install(FILES packaging/grafana-dashboard.json DESTINATION ${CMAKE_INSTALL_DATADIR}/viaduct)

# Completions of shells, generated from the --help texts of the built programs.
if(Python3_Interpreter_FOUND AND NOT CMAKE_CROSSCOMPILING)
    set(completion ${PROJECT_BINARY_DIR}/completion)
    set(programs)
    foreach(program viaduct viaductd viaduct-ip oshrun oshinfo)
        if(TARGET ${program})
            list(APPEND programs ${program})
            install(FILES ${completion}/bash/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
            install(FILES ${completion}/zsh/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
            install(FILES ${completion}/fish/${program}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
        endif()
    endforeach()
    add_custom_command(
        OUTPUT ${completion}/options.tsv
        COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/completion ${VIADUCT_BIN_DIR} ${completion}
        DEPENDS ${PROJECT_SOURCE_DIR}/tools/completion ${programs}
        COMMENT "Completions of shells" VERBATIM)
    add_custom_target(completion ALL DEPENDS ${completion}/options.tsv)
endif()
