import type { Clock } from '../lib/time/clock.ts';
import type { Fetch } from './fetch-trusting.ts';

/** Options of the management client. */
export interface ManagementClientOptions {
  /** The management URL of a gateway of your own. Default: ngrok's cloud, `https://api.ngrok.com`. */
  baseUrl?: string | undefined;
  apiKey: string;
  /** Version of the API; 2 is the only one. */
  version?: string | undefined;
  /** Milliseconds for one attempt, including the response's body. Default: 30 s. */
  timeoutMs?: number | undefined;
  /** Maximum retries of a call, where a retry is safe. Default: 3. */
  retries?: number | undefined;
  /**
   * PEM of the CA of the API's certificate, if it is not a public CA: a gateway's `ca.pem`. Cannot be combined with
   * `fetch`.
   */
  ca?: string | undefined;
  /** Replaces the global `fetch`. */
  fetch?: Fetch | undefined;
  /** For tests. */
  clock?: Clock | undefined;
}

/** Options of every method. */
export interface CallOptions {
  /** Aborts the call, including waits between retries. */
  signal?: AbortSignal | undefined;
}

/** Selects a part of a list; `Filter` are the further query parameters that it has. */
export interface ListOptions<Filter extends string = never> extends CallOptions {
  /** Items per page, from 1 to 100. Default: 100. */
  limit?: number | undefined;
  /** Only items older than this id. */
  beforeId?: string | undefined;
  /** Only items for which all of these hold. */
  filters?: { [Name in Filter]?: string | undefined } | undefined;
}

/** One page of a list, newest first. */
export interface Page<T> {
  items: T[];
  /** URI of the next page; null: this is the last page. */
  nextPageUri: string | null;
}

/** Read-only resources of one kind. */
export interface ReadableCollection<Answer, Filter extends string = never> {
  /** @throws {ManagementError} `isNotFound` when the id does not exist */
  get(id: string, options?: CallOptions): Promise<Answer>;

  /** Lists one page, newest first. */
  list(options?: ListOptions<Filter>): Promise<Page<Answer>>;

  /**
   * Iterates over all items, newest first, and fetches pages as needed. Items created meanwhile are not included.
   *
   * @param options `limit` is the page size
   */
  all(options?: ListOptions<Filter>): AsyncGenerator<Answer, void, undefined>;
}

/** Resources of one kind that can be read and deleted. */
export interface DeletableCollection<Answer, Filter extends string = never> extends ReadableCollection<Answer, Filter> {
  /** @throws {ManagementError} `isNotFound` when it does not exist; `hasCode()` tells why it cannot be deleted */
  delete(id: string, options?: CallOptions): Promise<void>;
}

/** Resources of one kind. */
export interface Collection<Create, Update, Answer, Filter extends string = never>
  extends DeletableCollection<Answer, Filter> {
  /**
   * Creates a resource. Not retried when a failure leaves the outcome unknown: check the list then.
   *
   * @throws {ManagementError} `hasCode()` tells the reason
   */
  create(body: Create, options?: CallOptions): Promise<Answer>;

  /** Changes the members in the body. `""` clears a text, `[]` a list. */
  update(id: string, body: Update, options?: CallOptions): Promise<Answer>;
}

/** One module of TLS edges; ids are those of the edge. */
export interface EdgeModule<Body, Answer> {
  /** Replaces the module. Members that are not in the body get their defaults. */
  replace(edgeId: string, body: Body, options?: CallOptions): Promise<Answer>;

  /** @throws {ManagementError} `isNotFound` when the edge or the module does not exist */
  get(edgeId: string, options?: CallOptions): Promise<Answer>;

  /** Removes the module; succeeds when it does not exist. */
  delete(edgeId: string, options?: CallOptions): Promise<void>;
}
