import { z } from 'zod';
import { trimSpace } from '../../lib/http/header-fields.ts';
import type { ActionContext } from '../action-context.ts';
import { forgetBytes } from '../action-parts/message-body.ts';
import { parseConfig } from '../action-problems.ts';
import type { ContentEncoding, PolicyRequest, PolicyResponse } from '../policy-subjects.ts';
import { allValues, firstValue } from '../scope/header-map.ts';
import type { PreparedAction } from '../steps.ts';

const KIB = 1024;

/** Bytes that an encoder takes outside of the JavaScript heap after its first 64 KiB. Measured with Node.js 24. */
const BYTES: Readonly<Record<ContentEncoding, number>> = { gzip: 272 * KIB, deflate: 272 * KIB, br: 704 * KIB };

const ALGORITHMS: readonly ContentEncoding[] = ['gzip', 'deflate', 'br'];

function isAlgorithm(name: string): name is ContentEncoding {
  return ALGORITHMS.some((known) => known === name);
}

/** ngrok documents it, no browser accepts it, and Node.js has no encoder for it: it is never negotiated. */
const OBSOLETE = 'compress';

const CompressResponseConfig = z.strictObject({
  algorithms: z
    .array(
      z.string().refine((name) => isAlgorithm(name) || name === OBSOLETE, {
        error: 'must be gzip, deflate or br',
        params: { ngrok: 'ERR_NGROK_2214' },
      }),
    )
    .min(1)
    .refine((names) => new Set(names).size === names.length, {
      error: 'must not repeat an algorithm',
      params: { ngrok: 'ERR_NGROK_2231' },
    })
    .transform((names) => names.filter(isAlgorithm))
    .refine((names) => names.length > 0, {
      error: 'must have gzip, deflate or br beside compress, which this gateway does not support',
      params: { ngrok: 'ERR_NGROK_2214' },
    })
    .optional(),
});

/** Compresses responses for clients that accept it, while processor time and memory for it are left. */
export function compressResponse(config: unknown, context: ActionContext): PreparedAction {
  const { algorithms = ALGORITHMS } = parseConfig(CompressResponseConfig, config);
  const { compressionTime, encoderMemory: memory } = context.ports;
  return {
    ends: false,
    on_http_response: () => (request, response) => {
      const time = compressionTime.shareOf(request.connection);
      const isEncoded = !/^(?:identity)?$/i.test(trimSpace(firstValue(response.headers, 'content-encoding') ?? ''));
      const isDue = !isEncoded && isCompressible(request, response) && !time.isSpent;
      const preferred = isDue ? negotiate(algorithms, request) : null;
      const encoding = preferred !== null && memory.leavesRoom(BYTES[preferred]) ? preferred : null;
      if (encoding !== null) {
        announce(response, encoding);
        response.compression = { encoding, time, memory, bytes: BYTES[encoding] };
      }
      request.scope?.changed();
      context.record(request, 'compress', { already_compressed: isEncoded, negotiated_algorithm: encoding ?? '' });
      return undefined;
    },
  };
}

/** Responses without a body, partial ones, and those with no-transform (RFC 9110, section 7.7). */
function isCompressible({ method }: PolicyRequest, { status, headers }: PolicyResponse): boolean {
  if (method === 'HEAD' || status < 200 || status === 204 || status === 206 || status === 304) return false;
  if (firstValue(headers, 'content-length') === '0') return false;
  return !allValues(headers, 'cache-control').some((value) => /\bno-transform\b/i.test(value));
}

function negotiate(algorithms: readonly ContentEncoding[], request: PolicyRequest): ContentEncoding | null {
  const accepted = qualities(allValues(request.headers, 'accept-encoding').join(','));
  let best: ContentEncoding | null = null;
  let bestQuality = 0;
  for (const name of algorithms) {
    const quality = accepted.get(name) ?? accepted.get('*') ?? 0;
    if (quality > bestQuality) [best, bestQuality] = [name, quality];
  }
  // A client may prefer the uncompressed body (RFC 9110, section 12.5.3).
  return bestQuality < (accepted.get('identity') ?? 0) ? null : best;
}

/** Browsers send five. */
const MAX_CODINGS = 100;

function qualities(header: string): Map<string, number> {
  const result = new Map<string, number>();
  for (const part of header.split(',', MAX_CODINGS)) {
    const [name = '', ...parameters] = part.split(';').map((text) => trimSpace(text).toLowerCase());
    const weight = parameters.find((text) => text.startsWith('q='))?.slice(2);
    const quality = weight === undefined ? 1 : Number(weight);
    if (name !== '') result.set(name, Number.isFinite(quality) ? quality : 0);
  }
  return result;
}

function announce({ headers }: PolicyResponse, encoding: ContentEncoding): void {
  forgetBytes(headers);
  headers.push('content-encoding', encoding);
  if (!allValues(headers, 'vary').some((value) => /(?:^|,)[ \t]*(?:\*|accept-encoding)[ \t]*(?:,|$)/i.test(value))) {
    headers.push('vary', 'Accept-Encoding');
  }
}
