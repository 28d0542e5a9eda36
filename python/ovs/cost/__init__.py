# SPDX-License-Identifier: Apache-2.0
"""Reads, keeps, compares and shows the cost reports of ovs-vswitchd.

    distribution   histograms, and what follows from them
    model          replies of the cost-show commands, and their differences
    recording      files of replies over time
    target         the connection to a running ovs-vswitchd
    text           the reports as ovs-appctl prints them
    compare        two recordings side by side
    svg, html      charts, and a page of them
    otlp           metrics in the form of OpenTelemetry
    stock          what any ovs-vswitchd has to say (stocktext, database,
                   processes; archive: from files)
    doctor         what is wrong (case, rules, faultrules, stockrules, blame)
    record, top    commands that watch a running ovs-vswitchd
    main           the command line of ovs-cost

Nothing in here needs more than Python's own library.
"""
