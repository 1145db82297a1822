/** Parses and issues certificates. Takes 12 MiB of memory: load it when it is needed. */
import 'reflect-metadata'; // its dependencies need it

export * from '@peculiar/x509';
