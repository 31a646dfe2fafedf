#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Wrong input of users: the error names each mistake, and nothing is started or left behind."""
import os

import cli

COMMANDS = ["up", "down", "status", "run", "sockets", "cut", "mend", "perf", "doctor"]


class Words(cli.Case):
    def test_help_is_there_for_every_command(self):
        whole = self.good("--help")
        self.assertEqual(whole, self.good("help"))
        for command in COMMANDS:
            self.assertIn("\n  %s " % command, whole)
            text = self.good(command, "--help")
            self.assertTrue(text.startswith("usage: viaduct %s " % command) or
                            text == "usage: viaduct doctor\n" + text.partition("\n")[2], text)
            self.assertEqual(self.good("help", command), text)

    def test_version(self):
        self.assertRegex(self.good("--version"), r"^viaduct \d+\.\d+\.\d+\n$")

    def test_mistakes_in_the_command_line_give_2_and_the_way_to_help(self):
        for words, expected in [
                ([], "no command"), (["upp"], "'upp': unknown command"),
                (["--upp"], "'--upp': unknown option"), (["help", "upp"], "'upp': unknown command"),
                (["up"], "which topology?"), (["up", "--ring", "x"], "'x': not a number"),
                (["up", "--ring", "-1"], "not a number"), (["up", "--ring"], "requires an argument"),
                (["up", "--ring", "2", "--mesh", "2"], "--mesh: one shape only"),
                (["up", "--torus", "2x2", "--ring", "2"], "--ring: one shape only"),
                (["up", "--torus", "2x2", "file"], "'file': one argument too many"),
                (["up", "--ring", "2", "--give-up-ms", "x"], "--give-up-ms: 'x': a number from 0 to 86400000"),
                (["up", "--ring", "2", "--wait-ms", "86400001"], "--wait-ms: '86400001': a number from 0 to 86400000"),
                (["up", "--ring", "2", "file"], "'file': one argument too many"),
                (["up", "--ring", "2", "--channels", "15"], "'15': a number from 1 to 14"),
                (["up", "--ring", "2", "--spin-us", "10001"], "--spin-us: '10001': a number from 0 to 10000"),
                (["up", "--ring", "2", "--with", "x"], "--with: 'x': not the number of a process"),
                (["up", "--wrong"], "unrecognized option '--wrong'"),
                (["down", "x"], "'x': one argument too many"),
                (["status", "x"], "'x': one argument too many"),
                (["doctor", "x"], "'x': one argument too many"),
                (["run", "true"], "on which host? --host H"),
                (["run", "--host", "1"], "which program?"),
                (["run", "--host", "a b", "true"], "'a b': neither a host id nor a name"),
                (["run", "a b", "--", "true"], "'a b': neither a host id nor a name"),
                (["sockets", "--wrong"], "unrecognized option '--wrong'"),
                (["sockets", "--ports", "80-", "true"], "--ports: '80-': ports are numbers and ranges"),
                (["sockets", "--networks", "x", "true"], "--networks: 'x': networks are addresses"),
                (["sockets", "--after", "x", "true"], "--after: 'x': not a number"),
                (["sockets", "--ports", "80"], "--ports: for which program?"),
                (["sockets", "--json", "true"], "--json: is for the list"),
                (["sockets", "--pid", "x"], "--pid: 'x': not the number of a process"),
                (["cut", "1"], "which link?"), (["cut", "1", "2", "3"], "which link?"),
                (["mend", "1", "x y"], "'x y': neither a host id nor a name"),
                (["cut", "--cable", "16", "1", "2"], "'16': not a number of a cable")]:
            with self.subTest(words):
                err = self.bad(*words, code=2, expected=expected)
                self.assertIn("--help'", err.splitlines()[-1])
        self.assert_nothing_left()

    def test_without_a_fabric_each_command_says_so(self):
        for words in (["status"], ["status", "--json"], ["cut", "1", "2"], ["mend", "1", "2"],
                      ["run", "--host", "1", "--", "true"]):
            with self.subTest(words):
                self.bad(*words, expected="fabric '%s': it is not up (no %s/fabric.json)" %
                         (self.name, self.rundir))
        self.assertIn("nothing to do", self.good("down"))
        self.assert_nothing_left()

    def test_invalid_names_are_refused(self):
        for name in ("a/b", "..", "x" * 33, "a b"):
            with self.subTest(name):
                self.bad("up", "--ring", "2", "--fabric", name, expected="fabric name '%s" % name)
        self.assert_nothing_left()


class Topology(cli.Case):
    def file(self, text):
        path = os.path.join(self.folder, "lab.topology")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def refused(self, text, line, expected):
        path = self.file(text)
        err = self.bad("up", path, expected="viaduct up: %s:%d: %s" % (path, line, expected))
        self.assertEqual(len(err.splitlines()), 1)
        self.assert_nothing_left()

    def test_an_unknown_word_names_its_line(self):
        self.refused("host 1\nhost 2\nlikn 1 2\n", 3, "'likn': unknown keyword")

    def test_a_host_id_taken_twice(self):
        self.refused("host 1\nhost 2\n# again\nhost 1\n", 4,
                     "'1': this host id is taken already, in line 1")

    def test_a_link_to_itself(self):
        self.refused("host 1\nlink 1 1\n", 2, "'link 1 1': host 1 is linked to itself")

    def test_a_link_to_an_unknown_host(self):
        self.refused("host 1\nlink 1 7\n", 2, "'link 1 7': there is no line 'host 7'")

    def test_a_doubled_link(self):
        self.refused("host 1\nhost 2\nlink 1 2\nlink 2 1\n", 4, "'link 1 2': this link is there")

    def test_numbers_that_are_none(self):
        self.refused("host one\n", 1, "'one': a host id is a number from 1 to 254")
        self.refused("host 1\nchannels 99\n", 2, "'99': the count of channels")

    def test_more_hosts_than_ids(self):
        self.bad("up", "--ring", "255", expected="--ring 255: 255 hosts, but ids go from 1 to 254")
        self.refused("".join("host %d\n" % i for i in range(1, 256)), 255,
                     "'255': a host id is a number from 1 to 254")

    def test_more_links_than_ports(self):
        self.bad("up", "--mesh", "18", expected="--mesh 18: host 1 would have 17 links")

    def test_invalid_sizes_of_a_torus(self):
        shape = "expected hosts along two or three dimensions, such as 4x3"
        for sizes, expected in (("", shape), ("x", shape), ("4x", shape), ("x4", shape), ("4X4", shape), ("2x2x2x2", shape),
                                ("-4x4", shape), ("4 x4", shape), ("1x4", "a dimension has at least 2 hosts"),
                                ("4x0", "a dimension has at least 2 hosts"), ("4", "one dimension is a ring: --ring 4"),
                                ("16x16", "255 hosts or more, but ids go from 1 to 254"),
                                ("99999999999x2", "255 hosts or more")):
            with self.subTest(sizes):
                self.bad("up", "--torus", sizes, expected="viaduct up: --torus %s: %s" % (sizes, expected))
        self.assert_nothing_left()

    def test_a_missing_file(self):
        self.bad("up", "/nowhere/lab", expected="/nowhere/lab: open: No such file or directory")
        self.assert_nothing_left()


class RunDirectory(cli.Case):
    def refused(self, expected):
        self.bad("up", "--ring", "2", expected=["run directory %s" % self.rundir, expected])
        self.assertEqual(cli.processes_with(self.rundir), {})

    def test_open_to_others(self):
        os.mkdir(self.rundir)
        os.chmod(self.rundir, 0o755)
        self.refused("mode 755 is open to others")
        self.bad("down", expected="mode 755 is open to others")

    def test_a_file(self):
        with open(self.rundir, "w", encoding="utf-8"):
            pass
        self.refused("is not a directory")

    def test_a_symbolic_link(self):
        os.symlink("/tmp", self.rundir)
        self.refused("is a symbolic link")

    def test_a_folder_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make another user's folder")
        os.mkdir(self.rundir, 0o700)
        os.chown(self.rundir, cli.NOBODY, cli.NOBODY)
        self.refused("belongs to uid %d" % cli.NOBODY)

    def test_too_long_for_a_socket(self):
        self.env["VIADUCT_RUNDIR"] = self.rundir = os.path.join(self.folder, "x" * 90)
        self.bad("up", "--ring", "2", expected="a socket address holds at most")
        self.env["VIADUCT_RUNDIR"] = self.rundir = "/tmp/" + "x" * (105 - len("/tmp/"))
        self.bad("up", "--ring", "2", expected="a socket address holds at most")
        self.assert_nothing_left()


if __name__ == "__main__":
    cli.main()
