# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
# What is installed besides libraries and commands, which say so where they are declared.

install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} OPTIONAL
        FILES_MATCHING PATTERN "*.h")

foreach(section 1 3 5 7 8)
    file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.${section})
    if(pages)
        install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endif()
endforeach()

configure_file(viaduct.pc.in viaduct.pc @ONLY)
if(TARGET libviaduct)
    install(FILES ${PROJECT_BINARY_DIR}/viaduct.pc
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
