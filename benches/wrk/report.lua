-- Shared by the scripts beside it: the last line a run prints, for run.py to read.
-- Times are in microseconds, as wrk keeps them.

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      'BENCH {"requests":%d,"duration_us":%d,"p50_us":%.0f,"p99_us":%.0f,'
         .. '"errors":{"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d}}\n',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.connect, errors.read, errors.write, errors.timeout, errors.status
   ))
end

function use_headers()
   wrk.method = "POST"
   wrk.headers["Content-Type"] = "application/json"
   wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN")
end
