import { describe, expect, it } from 'vitest';
import { responseOf } from '../fake-request.ts';
import { onResponse, runResponse } from './run-action.ts';

describe('compress-response', () => {
  const text = onResponse({ type: 'compress-response' });
  const compress = (accepts: string, headers: string[] = ['Content-Type', 'text/html'], status = 200, method = 'GET') =>
    runResponse(text, responseOf(status, [...headers]), { method, headers: ['Accept-Encoding', accepts] }).response;

  it('adjusts the headers to the compressed body', () => {
    const response = compress('gzip', ['Content-Length', '500', 'ETag', '"a"', 'Vary', 'Cookie']);
    expect(response.compression?.encoding).toBe('gzip');
    expect(response.headers).toEqual([
      'ETag',
      'W/"a"',
      'Vary',
      'Cookie',
      'content-encoding',
      'gzip',
      'vary',
      'Accept-Encoding',
    ]);
  });

  it.each([
    ['gzip, br', 'gzip'],
    ['gzip;q=0.5, br', 'br'],
    ['*', 'gzip'],
    ['gzip;q=0, *;q=0.1', 'deflate'],
    ['compress', undefined],
    ['identity', undefined],
    ['identity, gzip;q=0.5', undefined],
    ['', undefined],
  ])('negotiates the encoding for accept-encoding %j', (accepts, encoding) => {
    expect(compress(accepts).compression?.encoding).toBe(encoding);
  });

  it.each<[string, string[], number, string]>([
    ['are encoded already', ['Content-Encoding', 'br'], 200, 'GET'],
    ['have no body', [], 204, 'GET'],
    ['are parts', [], 206, 'GET'],
    ['were asked for with HEAD', [], 200, 'HEAD'],
    ['must not be transformed', ['Cache-Control', 'public, no-transform'], 200, 'GET'],
    ['are empty', ['Content-Length', '0'], 200, 'GET'],
  ])('does not compress responses that %s', (_, headers, status, method) => {
    const response = compress('gzip', headers, status, method);
    expect(response.compression?.encoding).toBeUndefined();
    expect(response.headers).toEqual(headers);
  });

  it('uses only the algorithms of the policy', () => {
    const only = onResponse({ type: 'compress-response', config: { algorithms: ['br'] } });
    const response = runResponse(only, responseOf(), { headers: ['Accept-Encoding', 'gzip'] }).response;
    expect(response.compression?.encoding).toBeUndefined();
  });
});
