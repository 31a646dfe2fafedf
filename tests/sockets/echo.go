// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only

// A program that makes its system calls itself, past every library:
//
//	echo serve ADDRESS:PORT         sends back what comes, for one connection
//	echo talk ADDRESS:PORT BYTES    sends BYTES bytes and checks what comes back
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, "echo:", err)
	os.Exit(1)
}

func serve(address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fail(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		fail(err)
	}
	if _, err := io.Copy(conn, conn); err != nil {
		fail(err)
	}
	conn.Close()
}

func talk(address string, count int) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fail(err)
	}
	data := make([]byte, count)
	for i := range data {
		data[i] = byte(i*31 + i/251)
	}
	go func() {
		if _, err := conn.Write(data); err != nil {
			fail(err)
		}
		conn.(*net.TCPConn).CloseWrite()
	}()
	back, err := io.ReadAll(conn)
	if err != nil {
		fail(err)
	}
	if !bytes.Equal(data, back) {
		fail(fmt.Errorf("%d bytes sent, %d others came back", len(data), len(back)))
	}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		serve(os.Args[2])
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "talk" {
		count, err := strconv.Atoi(os.Args[3])
		if err != nil {
			fail(err)
		}
		talk(os.Args[2], count)
		return
	}
	fmt.Fprintln(os.Stderr, "usage: echo serve ADDRESS:PORT | talk ADDRESS:PORT BYTES")
	os.Exit(64)
}
