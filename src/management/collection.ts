import { z } from 'zod';
import { validationMessage } from '../lib/validation-messages.ts';
import { unreadable } from './answer.ts';
import type { ManagementError } from './management-error.ts';
import type { Operation } from './operations.ts';
import type { Call, Transport } from './transport.ts';

/** What every method takes as its last argument. */
export interface CallOptions {
  /** Ends the call, and the wait before a repetition. */
  signal?: AbortSignal | undefined;
}

/** Which part of a list to fetch. */
export interface ListOptions extends CallOptions {
  /** Items a page, from 1 to 100; the service's own default is 100. */
  limit?: number | undefined;
  /** Only items older than this id. */
  beforeId?: string | undefined;
}

/** One page of a list, newest first. */
export interface Page<T> {
  items: T[];
  /** Where the next page is; null: this is the last one. */
  nextPageUri: string | null;
}

/** An operation that takes a body which may be written as `Body`, and answers with an `Answer`. */
type Changing<Body, Answer> = Operation<z.ZodType<unknown, Body>, z.ZodType<Answer>>;
type Reading<Answer> = Operation<null, z.ZodType<Answer>>;

interface ReadOperations<Answer> {
  get: Reading<Answer>;
  list: Reading<Answer>;
}

interface WriteOperations<Create, Update, Answer> extends ReadOperations<Answer> {
  create: Changing<Create, Answer>;
  update: Changing<Update, Answer>;
  delete: Operation<null, null>;
}

interface ModuleOperations<Body, Answer> {
  replace: Changing<Body, Answer>;
  get: Reading<Answer>;
  delete: Operation<null, null>;
}

/** Calls an operation and reads its answer; members that the schema does not know are dropped. */
async function call<Answer>(
  transport: Transport,
  operation: Operation<z.ZodType | null, z.ZodType<Answer>>,
  particulars: Call,
): Promise<Answer> {
  return readAs(operation.answer, await transport.send(operation, particulars), operation);
}

function readAs<T>(schema: z.ZodType<T>, json: unknown, operation: Operation): T {
  const result = schema.safeParse(json, { error: validationMessage });
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const where = issue?.path.map(String).join('.') || 'the answer';
  throw unreadable(`${operation.method} ${operation.path}`, 200, `${where}: ${issue?.message}`);
}

/** What every list answers besides its items, which stand under a key that differs from kind to kind. */
const Envelope = z.looseObject({ next_page_uri: z.string().nullish() });

/** Resources of one kind that can only be read. */
export class ReadableCollection<Answer> {
  constructor(
    protected readonly transport: Transport,
    protected readonly reads: ReadOperations<Answer>,
  ) {}

  /** @throws {ManagementError} `isNotFound` when there is none with this id */
  get(id: string, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.reads.get, { id, signal });
  }

  /** One page, newest first. */
  list({ limit, beforeId, signal }: ListOptions = {}): Promise<Page<Answer>> {
    const query = new URLSearchParams();
    if (beforeId !== undefined) query.set('before_id', beforeId);
    if (limit !== undefined) query.set('limit', String(limit));
    return this.#page(query, signal);
  }

  /**
   * Everything, newest first, page by page as the loop gets there. What is created meanwhile is not seen.
   *
   * @param options `limit` is the size of a page
   */
  async *all(options: ListOptions = {}): AsyncGenerator<Answer, void, undefined> {
    let page = await this.list(options);
    yield* page.items;
    while (page.nextPageUri !== null && page.items.length > 0) {
      const next = await this.#page(this.#queryOf(page.nextPageUri), options.signal);
      if (next.nextPageUri === page.nextPageUri) throw this.#badPage('a page names itself as the next one');
      page = next;
      yield* page.items;
    }
  }

  /** Only the query is taken over: wherever the URI points, the key goes nowhere but to the base URL. */
  #queryOf(uri: string): URLSearchParams {
    if (!URL.canParse(uri)) throw this.#badPage('next_page_uri is not an absolute URI');
    return new URL(uri).searchParams;
  }

  #badPage(why: string): ManagementError {
    return unreadable(`GET ${this.reads.list.path}`, 200, why);
  }

  async #page(query: URLSearchParams, signal: AbortSignal | undefined): Promise<Page<Answer>> {
    const { list } = this.reads;
    const envelope = readAs(Envelope, await this.transport.send(list, { query, signal }), list);
    const items = readAs(z.array(list.answer), envelope[list.listKey ?? ''], list);
    return { items, nextPageUri: envelope.next_page_uri ?? null };
  }
}

/** Resources of one kind. */
export class Collection<Create, Update, Answer> extends ReadableCollection<Answer> {
  constructor(
    transport: Transport,
    protected readonly operations: WriteOperations<Create, Update, Answer>,
  ) {
    super(transport, operations);
  }

  /**
   * Makes a new one. Not repeated after a failure that leaves open whether the service took it: look at the list then.
   *
   * @throws {ManagementError} `hasCode()` tells why the service refuses
   */
  create(body: Create, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.create, { body, signal });
  }

  /** Changes what the body names and leaves the rest; text is cleared by `""`, a list by `[]`. */
  update(id: string, body: Update, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.update, { id, body, signal });
  }

  /** @throws {ManagementError} `isNotFound` when it is gone already; `hasCode()` tells why the service keeps it */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(this.operations.delete, { id, signal });
  }
}

/** One module of TLS edges; ids are those of the edge. */
export class EdgeModule<Body, Answer> {
  constructor(
    private readonly transport: Transport,
    private readonly operations: ModuleOperations<Body, Answer>,
  ) {}

  /** Sets the module to what the body says; what is not sent takes its default, whatever was stored. */
  replace(edgeId: string, body: Body, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.replace, { id: edgeId, body, signal });
  }

  /** @throws {ManagementError} `isNotFound` when the edge or the module does not exist */
  get(edgeId: string, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.get, { id: edgeId, signal });
  }

  /** Removes the module; it may be absent already. */
  async delete(edgeId: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(this.operations.delete, { id: edgeId, signal });
  }
}
