"""A program that fetches one page after another by urllib3, and on a refusal waits for as long as Retry-After says."""

import sys

import urllib3

site, pages = sys.argv[1], int(sys.argv[2])
http = urllib3.PoolManager(retries=urllib3.Retry(3))
for number in range(pages):
    url = f"{site}/page/{number}"
    assert http.request("GET", url).status == 200
    print(url)
