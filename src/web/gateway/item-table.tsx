import type { JSX } from 'preact';
import { Button } from '../ui/button.tsx';
import { linkTo } from '../ui/router.ts';
import type { Action, Column, Item, SectionName } from './section.ts';

export interface ItemTableProps<T extends Item> {
  title: string;
  columns: readonly Column<T>[];
  items: readonly T[];
  /** The section that has a page of each item; left out: there are no pages. */
  section?: SectionName;
  /** Buttons of each row. */
  actions?: (item: T) => readonly Action[];
  onAction?: (action: Action) => void;
}

/** A table of items. On a phone, each row becomes a card whose cells name their column. */
export function ItemTable<T extends Item>(props: ItemTableProps<T>): JSX.Element {
  const { title, columns, items, section, actions, onAction } = props;
  return (
    <div class="card table">
      <table aria-label={title}>
        <thead>
          <tr>
            {columns.map(({ head }) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
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
                  <div>
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
