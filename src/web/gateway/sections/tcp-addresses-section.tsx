import type { ReservedAddr } from '../../../management/resources/reserved-addr.ts';
import { Named, optional } from '../cells.tsx';
import { filled } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { ANNOTATIONS, CREATED, DESCRIPTION_FIELD, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import { OWNER, OWNER_FIELD } from './credentials-section.tsx';

export const tcpAddressesSection = resource<ReservedAddr>(RESOURCES.reservedAddrs, {
  name: 'tcp-addresses',
  title: 'TCP addresses',
  nameOf: ({ addr }) => addr,
  columns: [
    { head: 'Address', cell: ({ addr, description }) => <Named name={addr} below={description} /> },
    OWNER,
    CREATED,
  ],
  searchTexts: ({ id, addr, description, metadata, owner_id }) => [id, addr, description, metadata, owner_id],
  empty: {
    title: 'No reserved TCP addresses yet',
    text: 'A reserved address is a port of tcp tunnels that only those get who ask for it.',
  },
  create: {
    label: 'Reserve TCP address',
    fields: [
      DESCRIPTION_FIELD,
      {
        ...OWNER_FIELD,
        hint: 'Optional. Only its authtokens can bind the address; without one, all whose rules allow it.',
      },
    ],
    body: ({ owner_id }) => filled({ owner_id }),
  },
  edit: { label: 'Edit TCP address', fields: ANNOTATIONS },
  facts: ({ addr, owner_id }) => [
    { label: 'Address', value: <code>{addr}</code> },
    ...optional('Bot user', owner_id && <ItemLink id={owner_id} />),
  ],
  remove: ({ addr }) => ({
    effects: [`Other agents may get ${addr}. The agent that has bound it stays online.`],
    submit: 'Delete TCP address',
  }),
});
