"""The specification of a campaign: stacks, workloads, short notation, expansion into trials.

Independent of hosts: reads only the campaign file and the files that it names. Imports only `errors` from pgstrata.
"""
