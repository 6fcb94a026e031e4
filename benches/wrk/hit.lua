-- The same question every time: after the first, each answer comes from the cache.

dofile("report.lua")
use_headers()
wrk.body = '{"applicationSetName":"hit","input":{"parameters":{"branch":"feature-branch-1"}}}'
