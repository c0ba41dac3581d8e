// Fetches four pages at a time with got, which honors Retry-After on a refusal.
import got from 'got';

const [site, pages] = process.argv.slice(2);
const urls = Array.from({ length: Number(pages) }, (_, number) => `${site}/page/${number}`);
while (urls.length > 0) {
  const four = urls.splice(0, 4);
  await Promise.all(four.map((url) => got(url)));
  four.forEach((url) => console.log(url));
}
