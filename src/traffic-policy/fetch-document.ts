import { publicRequest } from './public-request.ts';

const DEADLINE_MS = 5000;

/**
 * Fetches a document from the public internet, without following redirects.
 *
 * @throws Error when the download fails or takes more than 5 s, or the document is longer than `maxBytes`
 */
export async function fetchDocument(url: string, maxBytes: number): Promise<Buffer> {
  const parsed = new URL(url);
  if (parsed.protocol !== 'https:') throw new Error('the URL must start with https://');
  const headers = ['accept', 'application/json, */*'];
  const request = { method: 'GET', url: parsed, headers, body: null, maxBytes };
  const { status, body } = await publicRequest(request, AbortSignal.timeout(DEADLINE_MS));
  if (status !== 200) throw new Error(`the server responded with status ${status}`);
  return body;
}
