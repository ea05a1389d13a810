create or replace view fly_counts as
    select a.name, count(b.id) as n from fly_authors a left join fly_books b on b.author = a.id group by a.name;
