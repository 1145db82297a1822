import type { PageMember, PageResource } from '../../management/page-resources.ts';
import { type Confirmation, edited, removal } from './action-dialogs.tsx';
import { Ago, type Annotated, commonFacts, Named, optional } from './cells.tsx';
import { type FormField, type FormValues, filled, type ItemForm } from './form.tsx';
import type { Action, Fact, Item, ListColumn, Section } from './section.ts';

export const DESCRIPTION_FIELD: FormField = {
  name: 'description',
  label: 'Description',
  hint: 'Optional.',
  kind: 'text',
};
/** The fields of the members that most resources have. */
export const ANNOTATIONS: readonly FormField[] = [
  DESCRIPTION_FIELD,
  { name: 'metadata', label: 'Metadata', hint: 'Optional.', kind: 'lines' },
];
/** When an item was created. */
export const CREATED: ListColumn<{ created_at: string }> = {
  head: 'Created',
  cell: ({ created_at }) => <Ago moment={created_at} />,
};

type Derived = 'path' | 'idPrefix' | 'listKey' | 'tables' | 'isSearched' | 'sorts';

/** What a section takes from its resource. */
export function listOf({ path, idPrefix, listKey, table, isSearched, sorts }: PageResource): Pick<Section, Derived> {
  return { path, idPrefix, listKey, tables: [table], isSearched, sorts };
}

type Said<T extends Item> = Omit<Section<T>, Derived | 'create' | 'actions'> & Partial<Pick<Section<T>, 'tables'>>;

/**
 * A resource whose items people create, change and delete. What is left out shows the members of its definition.
 * Descriptions and metadata need no values and no body.
 */
export interface ListedResource<T extends Annotated>
  extends Pick<Said<T>, 'name' | 'title' | 'empty'>,
    Partial<Omit<Said<T>, 'name' | 'title' | 'empty'>> {
  create?: Omit<ItemForm, 'body'> & { body?: ItemForm['body'] };
  edit?: Pick<ItemForm, 'label' | 'fields'> & { values?: (item: T) => FormValues; body?: ItemForm['body'] };
  /** Left out of it: the title `Delete <name>?`, the label `Delete`. */
  remove: (item: T) => Pick<Confirmation, 'effects' | 'submit'> & Partial<Pick<Confirmation, 'title' | 'label'>>;
  /** With other actions than to edit and to remove, or in another order. */
  actions?: (item: T, usual: { edit: Action[]; remove: Action[] }) => readonly Action[];
}

/** The list of a resource's items, with what one can do with each. */
export function resource<T extends Annotated>(definition: PageResource, said: ListedResource<T>): Section<T> {
  const list = listOf(definition);
  const { create, edit, remove, facts, actions, ...section } = { ...plainSection<T>(definition), ...said };
  const usual = (item: T) => {
    const path = `${list.path}/${item.id}`;
    return {
      edit: edit ? [edited({ name: 'edit', label: 'Edit', method: 'PATCH', path, form: editForm(edit, item) })] : [],
      remove: [removal({ title: `Delete ${section.nameOf(item)}?`, ...remove(item), path })],
    };
  };
  return {
    ...list,
    ...section,
    ...(create && {
      create: { ...create, body: (values) => ({ ...create.body?.(values), ...newAnnotations(values) }) },
    }),
    facts: (item) => [...facts(item), ...commonFacts(item)],
    actions: (item) => {
      const found = usual(item);
      return actions ? actions(item, found) : [...found.edit, ...found.remove];
    },
  };
}

/** A member as it is, in words. */
function textOf(item: object, { name }: PageMember): string {
  const value: unknown = (item as Readonly<Record<string, unknown>>)[name];
  return value === null || value === undefined ? '' : String(value);
}

/** Members as they are, for a search. */
function memberTexts(item: object, { members }: PageResource): string[] {
  return members.map((member) => textOf(item, member));
}

/** Columns of members as they are, those first that are named. */
export function memberColumns<T extends object>(
  { members, sorts }: PageResource,
  first: readonly string[] = [],
): ListColumn<T>[] {
  return inOrder(members, first).map((member) => ({
    head: member.label,
    cell: (item) => textOf(item, member) || '–',
    ...(sorts.includes(member.name) && { sort: member.name }),
  }));
}

/** What is known of members as they are, those first that are named. */
export function memberFacts(item: object, { members }: PageResource, first: readonly string[] = []): Fact[] {
  return inOrder(members, first).flatMap((member) => optional(member.label, textOf(item, member)));
}

function inOrder(members: readonly PageMember[], first: readonly string[]): readonly PageMember[] {
  const place = ({ name }: PageMember) => (first.includes(name) ? first.indexOf(name) : first.length);
  return members.toSorted((a, b) => place(a) - place(b));
}

/** A section that shows the members of a definition: the first one names an item. */
function plainSection<T extends Annotated>(definition: PageResource) {
  const { members, label } = definition;
  const [first, ...others] = members;
  const nameOf = (item: T): string => (first && textOf(item, first)) || item.id;
  const form = (kind: keyof PageMember['isSent']) => {
    const sent = members.filter(({ isSent }) => isSent[kind]);
    const fields = sent.map(({ name, label, hint }): FormField => ({ name, label, hint, kind: 'text' }));
    return { sent, fields: [...fields, ...ANNOTATIONS] };
  };
  const [sent, changed] = [form('create'), form('update')];
  const what = label.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
  const named: ListColumn<T> = {
    head: first?.label ?? label,
    cell: (item) => <Named name={nameOf(item)} below={item.description} />,
  };
  return {
    nameOf,
    columns: [named, ...memberColumns<T>({ ...definition, members: others }), CREATED],
    searchTexts: (item: T) => [...memberTexts(item, definition), ...[item.id, item.description, item.metadata]],
    facts: (item: T) => memberFacts(item, definition),
    ...(sent.sent.length > 0 && {
      create: {
        label: `Create ${what}`,
        fields: sent.fields,
        body: (values: FormValues) => filled(valuesOf(sent.sent, values)),
      },
    }),
    ...(changed.sent.length > 0 && {
      edit: {
        label: `Edit ${what}`,
        fields: changed.fields,
        values: (item: T) => Object.fromEntries(changed.sent.map((member) => [member.name, textOf(item, member)])),
        body: (values: FormValues) => valuesOf(changed.sent, values),
      },
    }),
  };
}

function valuesOf(members: readonly PageMember[], values: FormValues): Record<string, string> {
  return Object.fromEntries(members.map(({ name }) => [name, values[name]?.trim() ?? '']));
}

function editForm<T extends Annotated>(edit: NonNullable<ListedResource<T>['edit']>, item: T): ItemForm {
  const { label, fields, values, body } = edit;
  const isAnnotated = fields.includes(DESCRIPTION_FIELD);
  return {
    label,
    fields,
    values: { description: item.description ?? '', metadata: item.metadata ?? '', ...values?.(item) },
    // An emptied field empties the member.
    body: ({ description = '', metadata = '', ...own }) => ({
      ...body?.(own),
      ...(isAnnotated && { description: description.trim(), metadata }),
    }),
  };
}

/** Description and metadata for a new item, without empty ones. */
export function newAnnotations({ description = '', metadata = '' }: FormValues): object {
  return {
    ...(description.trim() !== '' && { description: description.trim() }),
    ...(metadata !== '' && { metadata }),
  };
}
