"""`octavo bench compare`: Octavo and the peers found on this machine, on the same model and the same work, in turns.

Every contender is a child process with one job at a time: `peers/` holds the peers' scripts, `own.py` ours,
`contender.py` the parent's end of the line. `workloads.py` says what is measured, `rounds.py` in which order,
`ratios.py` and `report.py` what comes out.
"""
