# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The part of slurm.conf that does not depend on where nodes and files are: no accounts, no cgroups, nothing outside the test."""

CONFIGURATION = """
ClusterName=viaduct
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
"""
