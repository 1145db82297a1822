import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useState } from 'preact/hooks';
import { Button } from '../ui/button.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { PagedList } from './paged-list.ts';
import type { Action, Item, ListColumn, Section } from './section.ts';

export interface ItemTableProps<T extends Item> {
  title: string;
  columns: readonly ListColumn<T>[];
  items: readonly T[];
  /** The section that has a page of each item; left out: there are no pages. */
  section?: string;
  /** Buttons of each row. */
  actions?: (item: T) => readonly Action[];
  onAction?: (action: Action) => void;
  /** Which rows are chosen, with the names of their checkboxes. Left out: they have none. */
  choice?: { has(item: T): boolean; toggle(item: T): void; nameOf(item: T): string };
  /** The present order, and what changes it. Left out: it is not sorted. */
  order?: { sort: string; onSort: (sort: string) => void };
}

/** A table of items. On a phone, each row becomes a card whose cells name their column. */
export function ItemTable<T extends Item>(props: ItemTableProps<T>): JSX.Element {
  const { title, columns, items, section, actions, onAction, order, choice } = props;
  return (
    <div class="card table">
      <table aria-label={title}>
        <thead>
          <tr>
            {columns.map(({ head, sort }) =>
              order && sort ? (
                <SortedHead key={head} head={head} sort={sort} order={order} />
              ) : (
                <th key={head} scope="col">
                  {head}
                </th>
              ),
            )}
            {actions && (
              <th scope="col">
                <span class="visually-hidden">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.id}>
              {columns.map(({ head, cell }, place) => (
                <td key={head} data-label={head}>
                  <div class={choice && place === 0 ? 'with-check' : undefined}>
                    {choice && place === 0 && (
                      <input
                        type="checkbox"
                        aria-label={`Choose ${choice.nameOf(item)}`}
                        checked={choice.has(item)}
                        onChange={() => choice.toggle(item)}
                      />
                    )}
                    {section !== undefined && place === 0 ? (
                      <a class="row-link" href={linkTo(section, item.id)}>
                        {cell(item)}
                      </a>
                    ) : (
                      cell(item)
                    )}
                  </div>
                </td>
              ))}
              {actions && (
                <td class="row-actions">
                  {actions(item).map((action) => (
                    <Button key={action.name} kind="quiet" onClick={() => onAction?.(action)}>
                      {action.label}
                    </Button>
                  ))}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface SortedHeadProps {
  head: string;
  sort: string;
  order: NonNullable<ItemTableProps<Item>['order']>;
}

/** The head of a column by which the list can be sorted: pressed again, in reverse; once more, newest first. */
function SortedHead({ head, sort, order: { sort: present, onSort } }: SortedHeadProps): JSX.Element {
  const reversed = `-${sort}`;
  const [state, arrow, next] =
    present === sort
      ? (['ascending', '↑', reversed] as const)
      : present === reversed
        ? (['descending', '↓', ''] as const)
        : (['none', '', sort] as const);
  return (
    <th scope="col" aria-sort={state}>
      <button type="button" class="sort" onClick={() => onSort(next)}>
        {head}
        <span aria-hidden="true">{arrow}</span>
      </button>
    </th>
  );
}

export interface OwnedItemsProps<T extends Item> extends Pick<Section<T>, 'path' | 'listKey'> {
  title: string;
  columns: readonly ListColumn<T>[];
  /** Whom they belong to; they are loaded again when it has changed. */
  owner: object;
  /** Whether an item of the list belongs there. */
  isOwned?: (item: T) => boolean;
  /** Left out: items are neither added nor changed there. */
  add?: () => Action;
  actions?: (item: T) => readonly Action[];
  /** The section that has a page of each item; left out: there are no pages. */
  section?: string;
  /** What stands there without items. */
  none: ComponentChildren;
}

/** The list may have items of others, too. */
const MOST = 10_000;

/** Items that belong to another one, on its page: a table, and what one can do with each. */
export function OwnedItems<T extends Item>(props: OwnedItemsProps<T>): JSX.Element {
  const { title, path, listKey, owner, isOwned = () => true, add, none } = props;
  const [list] = useState(() => new PagedList<T>({ path, listKey }));
  const open = useSignal<Action | null>(null);
  const heading = useId();
  const load = () => void list.refresh(MOST);
  useEffect(load, [owner]);
  const items = list.items.value.filter(isOwned);
  const show = (action: Action) => {
    open.value = action;
  };
  // The table is current before the dialog returns the focus to it.
  const done = async () => {
    await list.reload();
    open.value = null;
    load();
  };
  return (
    <section class="part" aria-labelledby={heading}>
      <div class="section-head">
        <h3 id={heading}>{title}</h3>
        {add && <Button onClick={() => show(add())}>{add().label}</Button>}
      </div>
      {list.problem.value && <ProblemNotice title="The list could not be loaded" problem={list.problem.value} />}
      {items.length === 0 && list.state.value !== 'loading' && none}
      {items.length > 0 && <ItemTable {...props} items={items} onAction={show} />}
      {open.value?.dialog(() => {
        open.value = null;
      }, done)}
    </section>
  );
}
