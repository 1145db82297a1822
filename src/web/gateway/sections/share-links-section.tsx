import type { ShareLink } from '../../../management/resources/share-link.ts';
import { Badge } from '../../ui/notice.tsx';
import { present } from '../../ui/time-span.ts';
import { Ago, dateOf, Named, optional } from '../cells.tsx';
import { stateChoice } from '../filters.ts';
import type { FormField, FormValues, ItemForm } from '../form.tsx';
import { CREATED, DESCRIPTION_FIELD, newAnnotations, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';

const HOUR_S = 3_600;

const FIELDS: readonly FormField[] = [
  {
    name: 'expires_in',
    label: 'Works for',
    kind: 'choice',
    options: [
      { value: String(24 * HOUR_S), label: '24 hours' },
      { value: String(HOUR_S), label: '1 hour' },
      { value: String(7 * 24 * HOUR_S), label: '7 days' },
      { value: String(30 * 24 * HOUR_S), label: '30 days' },
    ],
  },
  {
    name: 'max_uses',
    label: 'Browsers that can open it',
    hint: 'Empty: any number.',
    kind: 'number',
    bounds: { min: 1, max: 1_000_000, canBeEmpty: true },
  },
  DESCRIPTION_FIELD,
];
const VALUES: FormValues = { expires_in: String(24 * HOUR_S), max_uses: '1' };

/** Makes a link to an endpoint. */
export const shareForm = (url: string): ItemForm => ({
  label: 'Share',
  fields: FIELDS,
  values: VALUES,
  body: ({ expires_in, max_uses = '', ...rest }) => ({
    url,
    expires_in: Number(expires_in),
    ...(max_uses.trim() !== '' && { max_uses: Number(max_uses) }),
    ...newAnnotations(rest),
  }),
  once: ({ link }) => (typeof link === 'string' ? { text: link, qr: link } : null),
});

function state({ uses, max_uses, expires_at }: ShareLink) {
  if (new Date(expires_at).getTime() <= present.value) return <Badge tone="neutral">Expired</Badge>;
  const isUsedUp = max_uses !== null && uses >= max_uses;
  return <Badge tone={isUsedUp ? 'neutral' : 'good'}>{isUsedUp ? 'Opened by all' : 'Valid'}</Badge>;
}

const opened = ({ uses, max_uses }: ShareLink) => (max_uses === null ? String(uses) : `${uses} of ${max_uses}`);

export const shareLinksSection = resource<ShareLink>(RESOURCES.shareLinks, {
  name: 'share-links',
  title: 'Share links',
  nameOf: ({ description, url }) => description || url,
  columns: [
    {
      head: 'Opens',
      sort: 'url',
      cell: ({ url, description }) => <Named name={url} below={description} unicode={url} />,
    },
    { head: 'State', cell: state },
    { head: 'Opened', sort: 'uses', cell: opened },
    { head: 'Expires', sort: 'expires_at', cell: ({ expires_at }) => dateOf(expires_at) },
    CREATED,
  ],
  filters: [stateChoice({ valid: 'Valid', expired: 'Expired', used_up: 'Opened by all' })],
  empty: {
    title: 'No share links',
    text: 'A share link lets browsers in at an endpoint for a while. Make one on the page of an endpoint, or run:',
    command: 'device-agent gateway share https://cam.example.com --for 24h',
  },
  facts: (link) => [
    { label: 'Opens', value: <span class="url">{link.url}</span> },
    { label: 'State', value: state(link) },
    { label: 'Opened', value: opened(link) },
    ...optional('Last opened', link.last_used_at && <Ago moment={link.last_used_at} />),
    { label: 'Expires', value: dateOf(link.expires_at) },
    { label: 'Made by', value: link.created_by },
  ],
  remove: () => ({
    title: 'Revoke this link?',
    label: 'Revoke',
    effects: ['It opens nothing any more. Browsers that have opened it are no longer let in.'],
    submit: 'Revoke link',
  }),
});
