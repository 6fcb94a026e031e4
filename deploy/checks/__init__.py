"""What deploy/check and deploy/chart check, a topic in each module. A problem is noted by `faults.fault`; nothing here needs a cluster."""
