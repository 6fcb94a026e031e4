-- A question never asked before, every time: `n` is made of the run's seed (BENCH_SEED, new for
-- each run), the thread's number and a counter, so no key repeats within a run or between runs.

dofile("report.lua")
use_headers()

local threads = 0

function setup(thread)
   threads = threads + 1
   thread:set("thread_number", threads)
end

local body = '{"applicationSetName":"bench","input":{"parameters":{"branch":"feature-branch-1","n":"%s-%d-%d"}}}'
local seed = os.getenv("BENCH_SEED")
local count = 0

function request()
   count = count + 1
   return wrk.format(nil, nil, nil, body:format(seed, thread_number, count))
end
