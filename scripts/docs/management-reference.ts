import { z } from 'zod';
import {
  OPERATIONS,
  type Operation,
  type OperationFamily,
  operationFamilies,
} from '../../src/management/operations.ts';

interface JsonSchema {
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
  description?: string;
  default?: unknown;
}

/** The tables of docs/management-api.md: each family's operations, and the members of its resource. */
export function managementReference(): string {
  return operationFamilies()
    .filter(({ name }) => name !== ALIAS)
    .map((family) => [headingOf(family.name), operationsTable(operationsOf(family)), membersTable(family.operations)])
    .map((parts) => parts.filter((part) => part !== '').join('\n\n'))
    .join('\n\n');
}

/** Bot users under another path. */
const ALIAS = 'serviceUsers';

/** All operations of a section: those of modules belong to their edge's. */
function operationsOf({ name, operations, modules }: OperationFamily): Operation[] {
  const others = [...modules.map((module) => module.operations), ...(name === 'botUsers' ? [OPERATIONS[ALIAS]] : [])];
  return [operations, ...others].flatMap((family) => Object.values<Operation>(family));
}

function headingOf(family: string): string {
  const words = family.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const named = words
    .replace(/^api /, 'API ')
    .replace(/^ip /, 'IP ')
    .replace(/^tls /, 'TLS ')
    .replace(/^http /, 'HTTP ');
  return `### ${named.charAt(0).toUpperCase()}${named.slice(1)}`;
}

function operationsTable(operations: readonly Operation[]): string {
  const rows = operations.map(({ method, path, status, summary }) => {
    const ofModule = /^(.*\/edges\/tls\/\{id\}\/)(\w+)$/.exec(path);
    if (!ofModule) return `| \`${method} ${path}\` | ${status} | ${summary} |`;
    const [, edge = '', module = ''] = ofModule;
    return `| \`${method} ${edge}{module}\` | ${status} | ${summary.replace(`the ${module} module`, 'one module')} |`;
  });
  return ['| Operation | Success | |', '| --- | --- | --- |', ...new Set(rows)].join('\n');
}

function membersTable({ get, create, update }: OperationFamily['operations']): string {
  const places: Places = {
    Create: membersOf(create?.body, 'input'),
    Update: membersOf(update?.body, 'input'),
    Answer: membersOf(get?.answer, 'output'),
  };
  const all = Object.values(places).flatMap(({ members }) => Object.keys(members));
  const names = [...new Set(all)].filter((name) => !COMMON.includes(name));
  const rows = names.map((name) => {
    const usage = create ? [mark(name, places.Create), mark(name, places.Update)] : [];
    const type = create ? typesOf(name, places) : typeOf(places.Answer.members[name] ?? {});
    const cells = [`\`${name}\``, ...usage, type, noteOf(name, places)];
    return `| ${cells.join(' | ')} |`;
  });
  const head = ['Member', ...(create ? ['Create', 'Update'] : []), 'Type', ''];
  return [`| ${head.join(' | ')} |`, `|${' --- |'.repeat(head.length)}`, ...rows].join('\n').replaceAll('|  |', '| |');
}

/** Members of every resource, which the page describes once. */
const COMMON = ['id', 'uri', 'created_at'];

type Places = Record<'Create' | 'Update' | 'Answer', Members>;

/** What is sent and what is answered, where the two differ. */
function typesOf(name: string, { Create, Update, Answer }: Places): string {
  const sent = Create.members[name] ?? Update.members[name];
  const answered = Answer.members[name];
  if (!sent) return `${typeOf(answered ?? {})} (read-only)`;
  if (!answered) return `${typeOf(sent)} (write-only)`;
  const [request, answer] = [typeOf(sent), typeOf(answered)];
  return request.startsWith('`{') && !answer.startsWith(request)
    ? `${request}, read as ${answer}`
    : answer.length > request.length
      ? answer
      : request;
}

interface Members {
  members: Record<string, JsonSchema>;
  required: readonly string[];
}

function membersOf(schema: z.ZodType | null | undefined, io: 'input' | 'output'): Members {
  if (!schema) return { members: {}, required: [] };
  const { properties = {}, required = [] } = z.toJSONSchema(schema, { io }) as JsonSchema;
  return { members: properties, required };
}

function mark(name: string, { members, required }: Members): string {
  if (!(name in members)) return '–';
  return required.includes(name) ? '**required**' : 'optional';
}

/** A type for people: `string`, `Ref or null`, `list of strings`. */
function typeOf({ type, const: constant, enum: values, items, anyOf, properties }: JsonSchema): string {
  if (anyOf) {
    const kinds = anyOf.filter((kind) => kind.type !== 'null').map(typeOf);
    return [...new Set(kinds), ...(kinds.length < anyOf.length ? ['null'] : [])].join(' or ');
  }
  if (constant !== undefined) return `\`${JSON.stringify(constant)}\``;
  if (values) return values.map((value) => `\`${JSON.stringify(value)}\``).join(', ');
  if (items) return `list of ${typeOf(items)}s`;
  if (properties) {
    const names = Object.keys(properties);
    return names.join() === 'id,uri' ? 'Ref' : `\`{${names.join(', ')}}\``;
  }
  const types = [type ?? 'string'].flat();
  return types.join(' or ');
}

/** The texts of a member, and its default. What differs between requests and answers says where it holds. */
function noteOf(name: string, { Create, ...others }: Places): string {
  const preset = Create.members[name]?.default;
  const texts = Object.entries({ Create, ...others }).flatMap(([place, { members }]) => {
    const text = members[name]?.description ?? '';
    return text === '' ? [] : [{ place, sentences: text.split(/(?<=\.) (?=[A-Z`])/) }];
  });
  const common = texts[0]?.sentences.filter((one) => texts.every(({ sentences }) => sentences.includes(one))) ?? [];
  const rest = new Map<string, string[]>();
  for (const { place, sentences } of texts) {
    const text = sentences.filter((one) => !common.includes(one)).join(' ');
    if (text !== '') rest.set(text, [...(rest.get(text) ?? []), place]);
  }
  const labelled = [...rest].map(([text, at]) => (common.length > 0 ? text : `${at.join(', ')}: ${text}`));
  return [...common, ...labelled, ...(isShown(preset) ? [`Default: \`${JSON.stringify(preset)}\`.`] : [])]
    .join(' ')
    .replaceAll('|', '\\|');
}

function isShown(preset: unknown): boolean {
  return preset !== undefined && preset !== null;
}
