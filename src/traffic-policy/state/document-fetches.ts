import type { ProcessorTime } from './processor-time.ts';

/** What policies fetch documents with: key sets and certificates. */
export interface DocumentSource {
  /** As `PolicyPorts.fetch`. */
  readonly fetch: (url: string, maxBytes: number, time: ProcessorTime) => Promise<Buffer>;
  /** Pays for it: the share of the network of the client that needs it first. */
  readonly time: ProcessorTime;
}

/** At a time, of all policies of one payer. */
const MAX_PARALLEL = 8;
/** Milliseconds of processor time of one document, most of it for a TLS handshake. */
const DOCUMENT_MS = 2;

/** Documents under way, by the time of those who pay for them. */
const parallel = new WeakMap<ProcessorTime, number>();

/**
 * Fetches a document at the cost of a payer.
 *
 * @throws Error when the download fails or times out, the document is longer than `maxBytes`, or too many are under way
 */
export async function fetchCharged({ fetch, time }: DocumentSource, url: string, maxBytes: number): Promise<Buffer> {
  const before = parallel.get(time.whole) ?? 0;
  if (before >= MAX_PARALLEL) throw new Error(`more than ${MAX_PARALLEL} documents at a time`);
  parallel.set(time.whole, before + 1);
  time.spend(DOCUMENT_MS);
  try {
    return await fetch(url, maxBytes, time);
  } finally {
    parallel.set(time.whole, (parallel.get(time.whole) ?? 1) - 1);
  }
}
