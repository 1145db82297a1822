/**
 * Writes the types of `device-agent/management` into `dist`: what the compiler has emitted, with interfaces in place of what it
 * infers from schemas. So a program needs no zod to be checked, and its editor shows the text of each member.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { kindOf } from '../src/management/family.ts';
import { type Operation, type OperationFamily, operationFamilies } from '../src/management/operations.ts';
import { Enrolment, EnrolmentRequest } from '../src/management/resources/enrolment.ts';
import { comment, NamedSchemas, reachableFiles } from './schema-types.ts';

const ENTRY = 'management/public.d.ts';
const FAMILIES = 'management/family.d.ts';
const RESOURCES = 'management/resources.d.ts';
const HEAD = '// Generated from the schemas and operations by packaging/management-types.ts.\n';

/** The client's members, and an interface for each family that has operations of its own. */
function familyTypes(schemas: NamedSchemas): string {
  const own: string[] = [];
  const typeOfFamily = (family: OperationFamily): string => {
    const { operations, modules } = family;
    const { create, update, replace, get, list, delete: remove } = operations;
    const body = (operation: Operation | undefined) =>
      operation?.body ? schemas.use(operation.body, 'input') : 'never';
    const answer = get?.answer ? schemas.use(get.answer, 'output') : 'never';
    if (replace) return `EdgeModule<${body(replace)}, ${answer}>`;
    const filter = list?.filters ? `, keyof ${schemas.use(list.filters, 'input')}` : '';
    const isWhole = create && update && remove;
    const base = isWhole
      ? `Collection<${body(create)}, ${body(update)}, ${answer}${filter}>`
      : `${remove ? 'Deletable' : 'Readable'}Collection<${answer}${filter}>`;
    const inherited = ['get', 'list', ...(remove ? ['delete'] : []), ...(isWhole ? ['create', 'update'] : [])];
    const methods = Object.entries(operations)
      .filter(([name]) => !inherited.includes(name))
      .flatMap(([name, operation]) => methodTypes(schemas, name, operation));
    const members = [
      ...methods,
      ...modules.map((module) => {
        const text = textOf(module);
        return `${comment(text, '  ')}  readonly ${module.name}: ${typeOfFamily(module)};\n`;
      }),
    ];
    if (members.length === 0) return base;
    const name = kindOf(family);
    own.push(`\n${comment(textOf(family), '')}export interface ${name} extends ${base} {\n${members.join('')}}\n`);
    return name;
  };
  const members = operationFamilies().map(
    (family) => `${comment(textOf(family), '  ')}  readonly ${family.name}: ${typeOfFamily(family)};\n`,
  );
  const types = [
    'CallOptions',
    'Collection',
    'DeletableCollection',
    'EdgeModule',
    'ListOptions',
    'Page',
    'ReadableCollection',
  ];
  return `${HEAD}import type { ${types.join(', ')} } from './client-types.ts';
import type { ${[...schemas.used.keys()].sort().join(', ')} } from './resources.ts';

/** The members of the client. */
export interface Families {
${members.join('')}}
${own.join('')}`;
}

/** What a family has, in the words of the schema of its resource. */
function textOf({ operations: { get } }: OperationFamily): string {
  return get?.answer?.description ?? '';
}

/** The method for an operation; for a list, also the one that iterates. */
function methodTypes(schemas: NamedSchemas, name: string, operation: Operation): string[] {
  const { path, summary, body, answer, listKey, takes, returns, query } = operation;
  const ids = ['id', 'type'].filter((id) => path.includes(`{${id}}`)).map((id) => `${id}: string`);
  const text = comment(`${summary}.`, '  ');
  const answered =
    answer === null ? 'void' : returns ? schemas.memberType(answer, returns) : schemas.use(answer, 'output');
  if (listKey !== null) {
    const args = [...ids, 'options?: ListOptions'].join(', ');
    const all = name.replace('list', 'all');
    return [
      `${text}  ${name}(${args}): Promise<Page<${answered}>>;\n`,
      `  /** Iterates over all of them, like {@link all}. */\n  ${all}(${args}): AsyncGenerator<${answered}, void, undefined>;\n`,
    ];
  }
  const isRequired = name === 'create' || name === 'update' || !body?.safeParse({}).success;
  const sent =
    body === null || takes === null
      ? []
      : [takes ? `${takes}: string` : `body${isRequired ? '' : '?'}: ${schemas.use(body, 'input')}`];
  const asked = query ? [`query?: ${schemas.use(query, 'input')}`] : [];
  const args = [...ids, ...sent, ...asked, 'options?: CallOptions'].join(', ');
  return [`${text}  ${name}(${args}): Promise<${answered}>;\n`];
}

const modules = readdirSync(join(import.meta.dirname, 'resources')).filter((name) => name.endsWith('.js'));
const exported = await Promise.all(modules.map((name) => import(`./resources/${name}`)));
const schemas = new NamedSchemas(exported.flatMap((module) => Object.entries(module)));
// Devices send these themselves.
schemas.use(EnrolmentRequest, 'input');
schemas.use(Enrolment, 'output');
const emitted = join(import.meta.dirname, 'emitted');
const generated: Readonly<Record<string, string>> = {
  [ENTRY]: `${readFileSync(join(emitted, ENTRY), 'utf8')}export * from './family.ts';\nexport * from './resources.ts';\n`,
  [FAMILIES]: familyTypes(schemas),
  [RESOURCES]: `${HEAD}${schemas.interfaces()}`,
};
const files = reachableFiles(ENTRY, (path) => generated[path] ?? readFileSync(join(emitted, path), 'utf8'));
// The entry last: a build that was interrupted lacks it.
for (const [path, text] of [...files].reverse()) {
  mkdirSync(join('dist', dirname(path)), { recursive: true });
  writeFileSync(join('dist', path), text);
}
