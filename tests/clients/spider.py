"""A Scrapy spider like in Scrapy's tutorial: follows every link of a site and ignores Retry-After."""

import scrapy


class Spider(scrapy.Spider):
    name = "spider"

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        print(response.url)
        yield from response.follow_all(css="a")
