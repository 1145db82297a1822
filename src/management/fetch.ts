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
