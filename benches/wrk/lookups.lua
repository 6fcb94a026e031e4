-- A question never asked before, every time, as in miss.lua; and each about another tag than those under way, so that
-- nobody gets a digest that was looked up for somebody else. harness/registry.py pushes the tags.

dofile("report.lua")
use_headers()

local TAGS = 64
local threads = 0

function setup(thread)
   threads = threads + 1
   thread:set("thread_number", threads)
end

local body = '{"applicationSetName":"bench","input":{"parameters":{"branch":"feature-branch-%d","n":"%s-%d-%d"}}}'
local seed = os.getenv("BENCH_SEED")
local count = 0

function request()
   count = count + 1
   return wrk.format(nil, nil, nil, body:format(count % TAGS + 1, seed, thread_number, count))
end
