import type { Option } from './form.ts';
import { PagedList } from './paged-list.ts';
import type { Item, Section } from './section.ts';

/** A field offers so many items at most. */
const MOST = 1_000;

/**
 * The items of a section that a field offers.
 *
 * @throws {ApiProblem}
 */
export async function loadOptions<T extends Item>(
  { path, listKey, nameOf }: Pick<Section<T>, 'path' | 'listKey' | 'nameOf'>,
  isOffered: (item: T) => boolean = () => true,
): Promise<readonly Option[]> {
  const list = new PagedList<T>(path, listKey);
  await list.loadUpTo(MOST);
  if (list.problem.value) throw list.problem.value;
  return list.items.value.filter(isOffered).map((item) => ({ value: item.id, label: nameOf(item), hint: item.id }));
}
