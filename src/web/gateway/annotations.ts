import type { FormField, FormValues } from './form.ts';

/** The fields of the members that most resources have. */
export const ANNOTATION_FIELDS: readonly FormField[] = [
  { name: 'description', label: 'Description', hint: 'Optional.', kind: 'text' },
  { name: 'metadata', label: 'Metadata', hint: 'Optional.', kind: 'lines' },
];

/** Their values for an item. */
export function annotationValues(item: {
  description?: string | null | undefined;
  metadata?: string | null | undefined;
}): FormValues {
  return { description: item.description ?? '', metadata: item.metadata ?? '' };
}

/** Their members for a new item, without empty ones. */
export function newAnnotations(values: FormValues): object {
  const { description: text = '', metadata: data = '' } = values;
  return { ...(text.trim() !== '' && { description: text.trim() }), ...(data !== '' && { metadata: data }) };
}

/** Their members for a change: an emptied field empties the member. */
export function changedAnnotations({ description: text = '', metadata: data = '' }: FormValues): object {
  return { description: text.trim(), metadata: data };
}
