"""What is asked: campaigns, stacks, workloads, short notation, expansion into trials.

Knows no host and touches nothing but the campaign file and the files that it names. Imports nothing of ours but
`errors`.
"""
