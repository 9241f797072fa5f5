"""Kinds of devices, block layers and filesystems: what each is asked for, and what it answers before anything is built.

One module a kind; `kind` says what may be asked of all of them, `registry` names them. Imports nothing but `spec`.
"""
