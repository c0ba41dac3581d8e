"""Fetches one page after the other with urllib3, which honors Retry-After on a refusal."""

import sys

import urllib3

site, pages = sys.argv[1], int(sys.argv[2])
http = urllib3.PoolManager(retries=urllib3.Retry(3))
for number in range(pages):
    url = f"{site}/page/{number}"
    assert http.request("GET", url).status == 200
    print(url)
