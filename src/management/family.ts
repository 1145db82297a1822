import { z } from 'zod';
import { validationMessage } from '../lib/validation-messages.ts';
import type {
  CallOptions,
  Collection,
  DeletableCollection,
  EdgeModule,
  ListOptions,
  Page,
  ReadableCollection,
} from './client-types.ts';
import type { OPERATIONS, Operation, OperationFamily } from './operations.ts';
import { type Call, showAs, type Transport, unreadable } from './transport.ts';

type BodyOf<O> = O extends { body: infer Body extends z.ZodType } ? z.input<Body> : never;
type AnswerOf<O> = O extends { answer: infer Answer extends z.ZodType } ? z.output<Answer> : never;
type FilterOf<O> = O extends { filters: infer Filters extends z.ZodObject } ? keyof z.output<Filters> & string : never;

type Has<Name extends string> = Readonly<Record<Name, Operation>>;

/** What a family has in common with others, and the names of those operations. */
type Kind<O> =
  O extends Has<'create' | 'update' | 'delete' | 'get' | 'list'>
    ? [
        Collection<BodyOf<O['create']>, BodyOf<O['update']>, AnswerOf<O['get']>, FilterOf<O['list']>>,
        'create' | 'update' | 'delete' | 'get' | 'list',
      ]
    : O extends Has<'replace' | 'get' | 'delete'>
      ? [EdgeModule<BodyOf<O['replace']>, AnswerOf<O['get']>>, 'replace' | 'get' | 'delete']
      : O extends Has<'delete' | 'get' | 'list'>
        ? [DeletableCollection<AnswerOf<O['get']>, FilterOf<O['list']>>, 'delete' | 'get' | 'list']
        : O extends Has<'get' | 'list'>
          ? [ReadableCollection<AnswerOf<O['get']>, FilterOf<O['list']>>, 'get' | 'list']
          : [unknown, never];

/** Arguments for the placeholders of a path. */
type Ids<O> = O extends { path: `${string}{id}${infer Below}` }
  ? Below extends `${string}{type}${string}`
    ? [id: string, type: string]
    : [id: string]
  : [];

/** A body can be left out where an empty one does something, except where it says what a resource is like. */
type Sent<Name, O> = O extends { query: infer Query extends z.ZodObject }
  ? [query?: z.input<Query>]
  : O extends { body: null } | { takes: null }
    ? []
    : O extends { takes: infer Member extends keyof BodyOf<O> }
      ? [member: Exclude<BodyOf<O>[Member], undefined>]
      : Name extends 'create' | 'update'
        ? [body: BodyOf<O>]
        : Record<never, never> extends BodyOf<O>
          ? [body?: BodyOf<O>]
          : [body: BodyOf<O>];

type Returned<O> = O extends { answer: null }
  ? Promise<void>
  : O extends { returns: infer Member extends keyof AnswerOf<O> }
    ? Promise<AnswerOf<O>[Member]>
    : Promise<AnswerOf<O>>;

/** The methods for the operations that only this family has. */
type OwnMethods<O> = {
  [Name in keyof O as O[Name] extends { listKey: null } ? Name : never]: (
    ...args: [...Ids<O[Name]>, ...Sent<Name, O[Name]>, options?: CallOptions]
  ) => Returned<O[Name]>;
} & {
  [Name in keyof O as O[Name] extends { listKey: string } ? Name : never]: (
    ...args: [...Ids<O[Name]>, options?: ListOptions]
  ) => Promise<Page<AnswerOf<O[Name]>>>;
} & {
  [Name in keyof O as O[Name] extends { listKey: string } ? AllOf<Name> : never]: (
    ...args: [...Ids<O[Name]>, options?: ListOptions]
  ) => AsyncGenerator<AnswerOf<O[Name]>, void, undefined>;
};

/** `allSecrets` for `listSecrets`. */
type AllOf<Name> = Name extends `list${infer Items}` ? `all${Items}` : never;

/** The methods for a family of operations. */
type Family<O> = Kind<O>[0] & OwnMethods<Omit<O, Kind<O>[1]>>;

type Operations = typeof OPERATIONS;
/** `tlsEdgeBackend` → `backend`; never for all other families. */
type ModuleName<Name> = Name extends `tlsEdge${infer Module}`
  ? Module extends Capitalize<Module>
    ? Uncapitalize<Module>
    : never
  : never;

/** The members of the client: families of operations. The modules of TLS edges are below these. */
export type Families = {
  readonly [Name in keyof Operations as ModuleName<Name> extends never ? Name : never]: Family<Operations[Name]>;
} & {
  readonly tlsEdges: { readonly [Name in keyof Operations as ModuleName<Name>]: Family<Operations[Name]> };
};

const KINDS: Readonly<Record<string, string>> = {
  'create,delete,get,list,update': 'Collection',
  'delete,get,list': 'DeletableCollection',
  'get,list': 'ReadableCollection',
  'delete,get,replace': 'EdgeModule',
};

/** What a family's type is called: `Collection` for example, or by its own name when no other has its operations. */
export function kindOf({ name, operations, modules }: OperationFamily): string {
  const members = [...Object.keys(operations), ...modules.map((module) => module.name)];
  return KINDS[members.sort().join()] ?? `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
}

/**
 * The methods for a family of operations: one for each, and for a list also one that iterates over all pages; and its modules.
 */
export function familyOf(transport: Transport, family: OperationFamily): object {
  const members: Record<string, unknown> = {};
  for (const [name, operation] of Object.entries(family.operations)) {
    if (operation.listKey === null) members[name] = methodOf(transport, operation);
    else {
      members[name] = listMethod(operation, (call) => pageOf(transport, operation, call));
      members[name.replace('list', 'all')] = listMethod(operation, (call) => allPages(transport, operation, call));
    }
  }
  for (const module of family.modules) members[module.name] = familyOf(transport, module);
  const { list, get } = family.operations;
  showAs(members, `${kindOf(family)} ${transport.baseUrl}${(list ?? get)?.path}`);
  return members;
}

/** Calls an operation and parses its response, without members that the schema does not define. */
function methodOf(transport: Transport, operation: Operation) {
  const { path, body, answer, takes, returns, query } = operation;
  return async (...args: unknown[]): Promise<unknown> => {
    const call: Call = {};
    if (path.includes('{id}')) call.id = args.shift() as string;
    if (path.includes('{type}')) call.type = args.shift() as string;
    if (takes !== undefined) call.body = takes === null ? {} : { [takes]: args.shift() };
    else if (body !== null) call.body = args.shift() ?? {};
    if (query !== undefined) call.query = filled((args.shift() ?? {}) as Readonly<Record<string, string | undefined>>);
    const [{ signal } = {}] = args as [CallOptions?];
    const json = await transport.send(operation, { ...call, signal });
    if (answer === null) return undefined;
    const read = readAs(answer, json, operation);
    return returns === undefined ? read : (read as Record<string, unknown>)[returns];
  };
}

function readAs<T>(schema: z.ZodType<T>, json: unknown, operation: Operation): T {
  const result = schema.safeParse(json, { error: validationMessage });
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const where = issue?.path.map(String).join('.') || 'the response';
  throw unreadable(`${operation.method} ${operation.path}`, 200, `${where}: ${issue?.message}`);
}

function listMethod<T>({ path }: Operation, read: (call: Call) => T) {
  return (...args: unknown[]): T => {
    const id = path.includes('{id}') ? { id: args.shift() as string } : {};
    const [{ limit, beforeId, filters = {}, signal } = {}] = args as [ListOptions<string>?];
    const query = filled(filters);
    if (beforeId !== undefined) query.set('before_id', beforeId);
    if (limit !== undefined) query.set('limit', String(limit));
    return read({ ...id, query, signal });
  };
}

function filled(parameters: Readonly<Record<string, string | undefined>>): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, value);
  return query;
}

async function* allPages(transport: Transport, operation: Operation, first: Call): AsyncGenerator {
  const bad = (why: string) => unreadable(`GET ${operation.path}`, 200, why);
  const isSearch = first.query?.has('search') ?? false;
  let call = first;
  for (let before: string | null = null; ; ) {
    const { items, nextPageUri } = await pageOf(transport, operation, call);
    if (nextPageUri !== null && nextPageUri === before) throw bad('next_page_uri refers to the same page');
    yield* items;
    // A search may find nothing on a page, and something on a later one.
    if (nextPageUri === null || (items.length === 0 && !isSearch)) return;
    if (!URL.canParse(nextPageUri)) throw bad('next_page_uri is not an absolute URI');
    // Only the query of the URI is used, so that the API key is sent only to the base URL.
    call = { ...call, query: new URL(nextPageUri).searchParams };
    before = nextPageUri;
  }
}

/** The common member of all lists. The items' key depends on the resource. */
const Envelope = z.looseObject({ next_page_uri: z.string().nullish() });

async function pageOf(transport: Transport, list: Operation, call: Call): Promise<Page<unknown>> {
  const envelope = readAs(Envelope, await transport.send(list, call), list);
  const items = readAs(z.array(list.answer ?? z.unknown()), envelope[list.listKey ?? ''], list);
  return { items, nextPageUri: envelope.next_page_uri ?? null };
}
