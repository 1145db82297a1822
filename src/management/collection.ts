import { z } from 'zod';
import { validationMessage } from '../lib/validation-messages.ts';
import type { Operation } from './operations.ts';
import { type Call, showAs, type Transport, unreadable } from './transport.ts';

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

/** An operation with the request body `Body` and the response `Answer`. */
type Changing<Body, Answer> = Operation<z.ZodType<unknown, Body>, z.ZodType<Answer>>;
type Reading<Answer> = Operation<null, z.ZodType<Answer>>;

interface ReadOperations<Answer> {
  get: Reading<Answer>;
  list: Reading<Answer>;
}

interface DeleteOperations<Answer> extends ReadOperations<Answer> {
  delete: Operation<null, null>;
}

interface WriteOperations<Create, Update, Answer> extends DeleteOperations<Answer> {
  create: Changing<Create, Answer>;
  update: Changing<Update, Answer>;
}

interface ModuleOperations<Body, Answer> {
  replace: Changing<Body, Answer>;
  get: Reading<Answer>;
  delete: Operation<null, null>;
}

/** Calls an operation and parses its response, without members that the schema does not define. */
export async function call<Answer>(
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
  const where = issue?.path.map(String).join('.') || 'the response';
  throw unreadable(`${operation.method} ${operation.path}`, 200, `${where}: ${issue?.message}`);
}

/** The common member of all lists. The items' key depends on the resource. */
const Envelope = z.looseObject({ next_page_uri: z.string().nullish() });

/**
 * Lists one page, newest first.
 *
 * @param id of the resource that the list belongs to, if it belongs to one
 */
export function listPage<Answer>(
  transport: Transport,
  operation: Reading<Answer>,
  options: ListOptions<string>,
  id?: string,
): Promise<Page<Answer>> {
  return pageOf(transport, operation, firstPage(options, id));
}

/**
 * Iterates over all items of a list, newest first, and fetches pages as needed. Items created meanwhile are not included.
 *
 * @param options `limit` is the page size
 * @param id of the resource that the list belongs to, if it belongs to one
 */
export async function* allPages<Answer>(
  transport: Transport,
  operation: Reading<Answer>,
  options: ListOptions<string>,
  id?: string,
): AsyncGenerator<Answer, void, undefined> {
  const bad = (why: string) => unreadable(`GET ${operation.path}`, 200, why);
  let call = firstPage(options, id);
  for (let before: string | null = null; ; ) {
    const { items, nextPageUri } = await pageOf(transport, operation, call);
    if (nextPageUri !== null && nextPageUri === before) throw bad('next_page_uri refers to the same page');
    yield* items;
    if (nextPageUri === null || items.length === 0) return;
    if (!URL.canParse(nextPageUri)) throw bad('next_page_uri is not an absolute URI');
    // Only the query of the URI is used, so that the API key is sent only to the base URL.
    call = { ...call, query: new URL(nextPageUri).searchParams };
    before = nextPageUri;
  }
}

function firstPage({ limit, beforeId, filters = {}, signal }: ListOptions<string>, id: string | undefined): Call {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) if (value !== undefined) query.set(name, value);
  if (beforeId !== undefined) query.set('before_id', beforeId);
  if (limit !== undefined) query.set('limit', String(limit));
  return { ...(id !== undefined && { id }), query, signal };
}

async function pageOf<Answer>(transport: Transport, list: Reading<Answer>, particulars: Call): Promise<Page<Answer>> {
  const envelope = readAs(Envelope, await transport.send(list, particulars), list);
  const items = readAs(z.array(list.answer), envelope[list.listKey ?? ''], list);
  return { items, nextPageUri: envelope.next_page_uri ?? null };
}

/** Read-only resources of one kind. */
export class ReadableCollection<Answer, Filter extends string = never> {
  constructor(
    protected readonly transport: Transport,
    protected readonly reads: ReadOperations<Answer>,
  ) {
    showAs(this, `${this.constructor.name} ${transport.baseUrl}${reads.list.path}`);
  }

  /** @throws {ManagementError} `isNotFound` when the id does not exist */
  get(id: string, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.reads.get, { id, signal });
  }

  /** Lists one page, newest first. */
  list(options: ListOptions<Filter> = {}): Promise<Page<Answer>> {
    return listPage(this.transport, this.reads.list, options);
  }

  /**
   * Iterates over all items, newest first, and fetches pages as needed. Items created meanwhile are not included.
   *
   * @param options `limit` is the page size
   */
  all(options: ListOptions<Filter> = {}): AsyncGenerator<Answer, void, undefined> {
    return allPages(this.transport, this.reads.list, options);
  }
}

/** Resources of one kind that the API does not create. */
export class DeletableCollection<Answer> extends ReadableCollection<Answer> {
  constructor(
    transport: Transport,
    private readonly deletes: DeleteOperations<Answer>,
  ) {
    super(transport, deletes);
  }

  /** @throws {ManagementError} `isNotFound` when it does not exist; `hasCode()` tells why it cannot be deleted */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(this.deletes.delete, { id, signal });
  }
}

/** Resources of one kind. */
export class Collection<Create, Update, Answer> extends DeletableCollection<Answer> {
  constructor(
    transport: Transport,
    protected readonly operations: WriteOperations<Create, Update, Answer>,
  ) {
    super(transport, operations);
  }

  /**
   * Creates a resource. Not retried when a failure leaves the outcome unknown: check the list then.
   *
   * @throws {ManagementError} `hasCode()` tells the reason
   */
  create(body: Create, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.create, { body, signal });
  }

  /** Changes the members in the body. `""` clears a text, `[]` a list. */
  update(id: string, body: Update, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.update, { id, body, signal });
  }
}

/** One module of TLS edges; ids are those of the edge. */
export class EdgeModule<Body, Answer> {
  constructor(
    private readonly transport: Transport,
    private readonly operations: ModuleOperations<Body, Answer>,
  ) {
    showAs(this, `EdgeModule ${transport.baseUrl}${operations.get.path}`);
  }

  /** Replaces the module. Members that are not in the body get their defaults. */
  replace(edgeId: string, body: Body, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.replace, { id: edgeId, body, signal });
  }

  /** @throws {ManagementError} `isNotFound` when the edge or the module does not exist */
  get(edgeId: string, { signal }: CallOptions = {}): Promise<Answer> {
    return call(this.transport, this.operations.get, { id: edgeId, signal });
  }

  /** Removes the module; succeeds when it does not exist. */
  async delete(edgeId: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(this.operations.delete, { id: edgeId, signal });
  }
}
