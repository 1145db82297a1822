/** An HTTP request. */
export interface FetchRequest {
  method: string;
  headers: Record<string, string>;
  redirect: 'manual';
  /** Aborts the request and the reading of its response. */
  signal: AbortSignal;
  body?: string;
}

/** The members of a response that the client uses. */
export interface FetchAnswer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
}

/** A subset of `fetch` that allows for other implementations, for example undici's with a proxy. */
export type Fetch = (url: string, request: FetchRequest) => Promise<FetchAnswer>;
