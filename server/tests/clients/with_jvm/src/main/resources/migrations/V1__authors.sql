create table fly_authors (
    id bigserial primary key,
    name varchar(40) not null unique,
    born date
);
insert into fly_authors (name, born) values ('Ada', '1815-12-10'), ('Grace', null);
