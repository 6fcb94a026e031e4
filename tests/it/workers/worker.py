"""A worker that does what its question says: `do`."""

import json, os, signal, subprocess, sys, threading, time

marker = sys.argv[1]
kept = []
if os.path.exists("broken"):
    sys.exit("cannot import the module that it needs")


def flood():
    while True:
        print("words without end", file=sys.stderr)


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


count = 0
for line in sys.stdin:
    count += 1
    question = json.loads(line)
    number, request = question["id"], question["request"]
    parameters = request["input"]["parameters"]
    do = parameters.get("do", "answer")
    one = {"pid": str(os.getpid()), "n": str(count), "token": str(len(os.environ.get("TOKEN", "")))}
    right = json.dumps({"id": number, "output": [one]}) + "\n"
    if do == "sleep":
        time.sleep(parameters.get("seconds", 0.4))
    if do == "say":
        right = json.dumps({"id": number, **parameters["more"]}) + "\n"
    if do == "request":
        right = json.dumps({"id": number, "output": [{"request": json.dumps(request)}]}) + "\n"
    if do == "words":
        threading.Thread(target=flood, daemon=True).start()
    if do == "complain":
        print("no access with " + os.environ["TOKEN"], file=sys.stderr, flush=True)
        right = json.dumps({"id": number, "output": "nothing " + os.environ["TOKEN"]}) + "\n"
    if do == "other id":
        right = json.dumps({"id": number + 1, "output": []}) + "\n"
    if do == "no id":
        right = json.dumps({"output": []}) + "\n"
    if do == "twice":
        right += right
    if do == "garbage":
        right = "loading the list\n" + right
    if do == "flood":
        while True:
            write("x" * 65536)
    if do == "half":
        write(right[:20])
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "half, then hang":
        write(right[:20])
        time.sleep(1000)
    if do == "forget to flush":
        sys.stdout.write(right)
        continue
    if do == "ahead":
        threading.Timer(0.2, write, [json.dumps({"id": number + 1, "output": []}) + "\n"]).start()
    if do == "keep":
        kept.append(bytearray(40 * 1024 * 1024))
    if do == "swell":
        held = bytearray(256 * 1024 * 1024)
    if do == "exit":
        sys.exit("nobody there")
    if do == "exit once" and not os.path.exists("once"):
        open("once", "w").close()
        sys.exit(1)
    if do == "close":
        os.close(1)
        time.sleep(1000)
    if do == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["setsid", "sh", "-c", f"trap '' TERM; sleep {marker}; sleep {marker}"])
        subprocess.run(["sleep", marker])
    write(right)
    if do == "later once more":
        time.sleep(0.1)
        write(right)
