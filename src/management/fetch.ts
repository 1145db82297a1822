/** What a {@link Fetch} is asked for. */
export interface FetchRequest {
  method: string;
  headers: Record<string, string>;
  redirect: 'manual';
  /** Ends the request, and the reading of its answer. */
  signal: AbortSignal;
  body?: string;
}

/** What is looked at of the answer to a {@link FetchRequest}. */
export interface FetchAnswer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
}

/** The part of `fetch` that is used here, so that any other one does as well: undici's, with a proxy of your own. */
export type Fetch = (url: string, request: FetchRequest) => Promise<FetchAnswer>;

/**
 * @param options.ca PEM of the authority to trust
 * @param options.fetch goes before all others
 * @param protocol of the service's URL: `https:` or `http:`
 * @returns what makes the requests
 * @throws {TypeError} at once, when the options cannot be used
 */
export function chooseFetch(
  { ca, fetch: own }: { ca?: string | undefined; fetch?: Fetch | undefined },
  protocol: string,
): Promise<Fetch> {
  if (ca === undefined) return Promise.resolve(own ?? fetch);
  if (own) throw new TypeError('give ca or fetch: a fetch knows whom to trust');
  // Node takes any text, and would trust nobody.
  if (!/-----BEGIN [A-Z0-9 ]*CERTIFICATE-----/.test(ca)) {
    throw new TypeError('ca must be a certificate in PEM: what is in its file, not the path');
  }
  return protocol === 'https:' ? trusting(ca) : Promise.resolve(fetch);
}

/** Node's own https client is loaded only where an authority is given: the global fetch may be all that there is. */
async function trusting(ca: string): Promise<Fetch> {
  return (await import('./fetch-trusting.ts')).fetchTrusting({ ca });
}
