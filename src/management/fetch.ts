/** A request to be made. */
export interface FetchRequest {
  method: string;
  headers: Record<string, string>;
  redirect: 'manual';
  /** Aborts the request and the reading of its response. */
  signal: AbortSignal;
  body?: string;
}

/** The part of the response to a {@link FetchRequest} that the client reads. */
export interface FetchAnswer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
}

/** The part of `fetch` that the client uses, so that another implementation fits: undici's, with your own proxy. */
export type Fetch = (url: string, request: FetchRequest) => Promise<FetchAnswer>;
