"""Ask for pages in the name of Chrome: imitating.py CLIENT BASE PAGES; prints the status of each."""
import sys

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"


def main(client, base, pages):
    # What a proxy with TLS adds.
    proxied = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
    if client == "curl_cffi":
        from curl_cffi import requests

        session = requests.Session(impersonate="chrome", headers=proxied)
    else:
        import httpx

        session = httpx.Client(headers={"User-Agent": CHROME, **proxied})
    for page in range(int(pages)):
        print(session.get(f"{base}/item/{page}").status_code)


main(*sys.argv[1:])
