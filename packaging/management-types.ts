/**
 * Writes the types of `device-agent/management` into `dist`: what the compiler has emitted, with interfaces in place of what it
 * infers from schemas. So a program needs no zod to be checked, and its editor shows the text of each member.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { kindOf } from '../src/management/family.ts';
import { type Operation, type OperationFamily, operationFamilies } from '../src/management/operations.ts';
import { Enrolment, EnrolmentRequest } from '../src/management/resources/enrolment.ts';
import { OWN_FORMS } from '../src/management/resources/resource.ts';

interface JsonSchema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  additionalProperties?: JsonSchema | false;
  required?: string[];
  description?: string;
  default?: unknown;
}

type Direction = 'input' | 'output';

const ENTRY = 'management/public.d.ts';
const FAMILIES = 'management/family.d.ts';
const RESOURCES = 'management/resources.d.ts';
const HEAD = '// Generated from the schemas and operations by packaging/management-types.ts.\n';

/** The schemas that the modules of resources export, by name. A second name of a schema is an alias of the first. */
class NamedSchemas {
  readonly #names = new Map<z.ZodType, string>();
  readonly #aliases = new Map<string, string>();
  readonly #json: Readonly<Record<Direction, Record<string, JsonSchema>>>;
  /** How each name is used; grows while types are written. */
  readonly used = new Map<string, Direction>();

  constructor(exported: readonly (readonly [name: string, value: unknown])[]) {
    const registry = z.registry<{ id: string }>();
    for (const [name, value] of exported) {
      // A part of schemas, such as `ownerId`, has no type of its own.
      if (!(value instanceof z.ZodType) || !/^[A-Z]/.test(name)) continue;
      const schema = OWN_FORMS.get(value) ?? value;
      const first = this.#names.get(schema);
      if (first !== undefined) this.#aliases.set(name, first);
      else registry.add(schema, { id: name });
      this.#names.set(schema, first ?? name);
    }
    const json = (io: Direction) =>
      z.toJSONSchema(registry, { io, uri: (id) => id, unrepresentable: 'any' }).schemas as Record<string, JsonSchema>;
    this.#json = { input: json('input'), output: json('output') };
  }

  /** The name of a schema, which its types will have. */
  use(schema: z.ZodType, direction: Direction): string {
    const name = this.#names.get(OWN_FORMS.get(schema) ?? schema);
    if (name === undefined) throw new Error(`a schema of an operation is not exported: ${JSON.stringify(schema.def)}`);
    this.#mark(name, direction);
    return name;
  }

  /** The type of a member of a response. */
  memberType(schema: z.ZodType, member: string): string {
    const name = this.#names.get(schema) ?? '';
    return this.#typeOf(this.#json.output[name]?.properties?.[member] ?? {}, 'output', '');
  }

  /** An interface for each name in use, and for all that they name. */
  interfaces(): string {
    let text = '';
    // Writing one may mark others, which then come later.
    for (const [name, direction] of this.used) {
      const schema = this.#json[direction][name] ?? {};
      text += `\n${comment(schema.description ?? '', '')}export interface ${name} ${this.#block(schema, direction, '')}\n`;
    }
    for (const [alias, name] of this.#aliases) {
      if (this.used.has(name)) text += `\nexport interface ${alias} extends ${name} {}\n`;
    }
    return text;
  }

  #mark(name: string, direction: Direction): void {
    if ((this.used.get(name) ?? direction) !== direction) throw new Error(`${name} is both sent and answered`);
    this.used.set(name, direction);
  }

  #block({ properties = {}, required = [] }: JsonSchema, direction: Direction, indent: string): string {
    const inner = `${indent}  `;
    const members = Object.entries(properties).map(([name, member]) => {
      const isOptional = !required.includes(name);
      const preset = direction === 'input' && member.default !== undefined && member.default !== null;
      const text = `${member.description ?? ''}${preset ? ` Default: \`${JSON.stringify(member.default)}\`.` : ''}`;
      const type = this.#typeOf(member, direction, inner);
      return `${comment(text.trim(), inner)}${inner}${name}${isOptional ? '?' : ''}: ${type}${isOptional ? ' | undefined' : ''};\n`;
    });
    return members.length === 0 ? '{}' : `{\n${members.join('')}${indent}}`;
  }

  #typeOf(schema: JsonSchema, direction: Direction, indent: string): string {
    const { $ref, const: constant, enum: values, items, properties, additionalProperties } = schema;
    const alternatives = schema.anyOf ?? schema.oneOf;
    const inner = (each: JsonSchema) => this.#typeOf(each, direction, indent);
    if ($ref !== undefined) {
      this.#mark($ref, direction);
      return $ref;
    }
    if (alternatives) return union(alternatives.map(inner));
    if (constant !== undefined) return JSON.stringify(constant);
    if (values) return union(values.map((value) => JSON.stringify(value)));
    if (items) {
      const item = inner(items);
      return item.includes(' | ') ? `(${item})[]` : `${item}[]`;
    }
    if (properties) return this.#block(schema, direction, indent);
    if (additionalProperties) return `Record<string, ${inner(additionalProperties)}>`;
    return union([schema.type ?? 'unknown'].flat().map((type) => (type === 'integer' ? 'number' : type)));
  }
}

/** `unknown` takes in all others. */
function union(types: readonly string[]): string {
  return types.includes('unknown') ? 'unknown' : [...new Set(types)].join(' | ');
}

function comment(text: string, indent: string): string {
  return text === '' ? '' : `${indent}/** ${text.replaceAll('*/', '*\\/')} */\n`;
}

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
      ? `Collection<${body(create)}, ${body(update)}, ${answer}>`
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
  const { path, summary, body, answer, listKey, takes, returns } = operation;
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
  return [`${text}  ${name}(${[...ids, ...sent, 'options?: CallOptions'].join(', ')}): Promise<${answered}>;\n`];
}

/** The files that the entry reaches, by their paths: those generated, and what the compiler emitted of all others. */
function reachableFiles(emitted: string, generated: Readonly<Record<string, string>>): Map<string, string> {
  const files = new Map<string, string>();
  const visit = (path: string): void => {
    if (files.has(path)) return;
    const text = (generated[path] ?? readFileSync(join(emitted, path), 'utf8'))
      // All resources are in one file.
      .replace(/'\.\/resources\/[\w-]+\.ts'/g, "'./resources.ts'");
    files.set(path, text);
    for (const [, name = ''] of text.matchAll(/ from '(\.[^']+)';$/gm))
      visit(join(dirname(path), name.replace(/\.ts$/, '.d.ts')));
  };
  visit(ENTRY);
  return files;
}

const modules = readdirSync(join(import.meta.dirname, 'resources')).filter((name) => name.endsWith('.js'));
const exported = await Promise.all(modules.map((name) => import(`./resources/${name}`)));
const schemas = new NamedSchemas(exported.flatMap((module) => Object.entries(module)));
// Devices send these themselves.
schemas.use(EnrolmentRequest, 'input');
schemas.use(Enrolment, 'output');
const emitted = join(import.meta.dirname, 'emitted');
const files = reachableFiles(emitted, {
  [ENTRY]: `${readFileSync(join(emitted, ENTRY), 'utf8')}export * from './family.ts';\nexport * from './resources.ts';\n`,
  [FAMILIES]: familyTypes(schemas),
  [RESOURCES]: `${HEAD}${schemas.interfaces()}`,
});
// The entry last: a build that was interrupted lacks it.
for (const [path, text] of [...files].reverse()) {
  mkdirSync(join('dist', dirname(path)), { recursive: true });
  writeFileSync(join('dist', path), text);
}
