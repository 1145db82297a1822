import { readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { type NextFunction, type Request, type Response, Router } from 'express';
import { hasErrno } from '../errors.ts';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Names that the build gives; nothing else of a request reaches the file system. */
const ASSET = /^[\w-]+\.(?:js|css|svg)$/;

/** Suffixes of the compressed copies that the build writes beside each file, smallest first. */
const ENCODINGS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const;

/** Scripts and styles from this site only, nothing inline, no frames, and no HTML from text. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const SECURITY_HEADERS = {
  'Content-Security-Policy': CONTENT_SECURITY_POLICY,
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
};

/**
 * Serves a page of the web build to browsers: `GET /` for requests that prefer HTML, and the files in `/assets/`. All other
 * requests pass on. Nothing is read before the first request.
 *
 * @param folder the web build
 * @param page the folder of the page in it
 */
export function staticSite(folder: string, page: string): Router {
  const router = Router();
  router.get('/', async (req, res, next) => {
    res.vary('Accept');
    if (req.accepts(['json', 'html']) !== 'html') return next();
    // The page names its scripts and styles, which get new names with each version.
    await send(join(folder, page, 'index.html'), 'no-cache', req, res, next);
  });
  router.get('/assets/:name', async (req, res, next) => {
    const { name } = req.params;
    if (!ASSET.test(name)) return next();
    await send(join(folder, 'assets', name), 'public, max-age=31536000, immutable', req, res, next);
  });
  return router;
}

/** Passes requests for a missing file on. */
async function send(file: string, caching: string, req: Request, res: Response, next: NextFunction): Promise<void> {
  // Browsers name br last, although it is the smallest.
  const [encoding, suffix] = ENCODINGS.find(([name]) => req.acceptsEncodings(name) === name) ?? [null, ''];
  const content = await readFile(file + suffix).catch((error: unknown) => {
    if (hasErrno(error, 'ENOENT')) return null;
    throw error;
  });
  if (content === null) return next();
  res.vary('Accept-Encoding');
  res.set({ ...SECURITY_HEADERS, 'Content-Type': TYPES[extname(file)], 'Cache-Control': caching });
  if (encoding !== null) res.set('Content-Encoding', encoding);
  res.send(content);
}
