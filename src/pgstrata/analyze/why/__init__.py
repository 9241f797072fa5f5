"""Reasons why transactions take longer on one stack than on another: time, disks, nodes, medium."""
