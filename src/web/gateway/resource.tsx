import { type Confirmation, edited, removal } from './action-dialogs.tsx';
import { Ago, type Annotated, commonFacts } from './cells.tsx';
import type { FormField, FormValues, ItemForm } from './form.tsx';
import type { Action, Column, Section } from './section.ts';

export const DESCRIPTION: FormField = { name: 'description', label: 'Description', hint: 'Optional.', kind: 'text' };
/** The fields of the members that most resources have. */
export const ANNOTATIONS: readonly FormField[] = [
  DESCRIPTION,
  { name: 'metadata', label: 'Metadata', hint: 'Optional.', kind: 'lines' },
];
/** When an item was created. */
export const CREATED: Column<{ created_at: string }> = {
  head: 'Created',
  cell: ({ created_at }) => <Ago moment={created_at} />,
};

/** A resource whose items people create, change and delete. Descriptions and metadata need no values and no body. */
export interface Resource<T extends Annotated> extends Omit<Section<T>, 'create' | 'actions' | 'listKey' | 'tables'> {
  /** Left out: the path. */
  listKey?: string;
  /** Left out: the one that is named as the list. */
  tables?: readonly string[];
  create?: Omit<ItemForm, 'body'> & { body?: ItemForm['body'] };
  edit?: Pick<ItemForm, 'label' | 'fields'> & { values?: (item: T) => FormValues; body?: ItemForm['body'] };
  /** Left out of it: the title `Delete <name>?`, the label `Delete`. */
  remove: (item: T) => Pick<Confirmation, 'effects' | 'submit'> & Partial<Pick<Confirmation, 'title' | 'label'>>;
  /** With other actions than to edit and to remove, or in another order. */
  actions?: (item: T, usual: { edit: Action[]; remove: Action[] }) => readonly Action[];
}

/** The list of a resource's items, with what one can do with each. */
export function resource<T extends Annotated>(options: Resource<T>): Section<T> {
  const { create, edit, remove, facts, actions, ...section } = options;
  const { listKey = section.path.slice(1), tables = [listKey] } = section;
  const usual = (item: T) => {
    const path = `${section.path}/${item.id}`;
    return {
      edit: edit ? [edited({ name: 'edit', label: 'Edit', method: 'PATCH', path, form: editForm(edit, item) })] : [],
      remove: [removal({ title: `Delete ${section.nameOf(item)}?`, ...remove(item), path })],
    };
  };
  return {
    ...section,
    listKey,
    tables,
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

function editForm<T extends Annotated>(edit: NonNullable<Resource<T>['edit']>, item: T): ItemForm {
  const { label, fields, values, body } = edit;
  const isAnnotated = fields.includes(DESCRIPTION);
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
