import sys

import counter

for line in sys.stdin:
    counter.hit(line.strip())
print(" ".join(counter.top(3)))
